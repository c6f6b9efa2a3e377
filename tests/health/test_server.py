from __future__ import annotations

import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry, Counter, Metric
from prometheus_client.registry import Collector

from slipstream.health import CannotListen, Health, HealthSettings, answering_at
from slipstream.health.server import REQUESTS_AT_A_TIME

registry = CollectorRegistry()
Counter("pies", "Baked", registry=registry).inc(3)


@pytest.fixture
def health() -> Health:
    return Health(HealthSettings(stall_ms=100))


@pytest.fixture
def address(health: Health) -> Iterator[tuple[str, int]]:
    with answering_at("127.0.0.1", 0, health, registry) as found:
        yield found


def asked(address: tuple[str, int], path: str, method: str = "GET") -> tuple[int, Any, str]:
    connection = HTTPConnection(*address, timeout=30)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        body = response.read()
        kind = response.headers["content-type"]
        return response.status, msgspec.json.decode(body) if body and "json" in kind else body.decode(), kind
    finally:
        connection.close()


def test_it_says_how_the_part_is(health: Health, address: tuple[str, int]) -> None:
    assert asked(address, "/health/live")[:2] == (200, {"status": "live"})
    assert asked(address, "/health/ready")[:2] == (503, {"status": "starting", "reason": "it is being started"})
    health.ready()
    assert asked(address, "/health/ready")[:2] == (200, {"status": "ready"})
    assert asked(address, "/health/ready?verbose=1")[:2] == (200, {"status": "ready"})
    assert asked(address, "/health/ready", "HEAD")[:2] == (200, "")
    health.stopping()
    assert asked(address, "/health/ready")[0] == 503


def test_it_gives_the_metrics_of_the_registry(address: tuple[str, int]) -> None:
    status, text, kind = asked(address, "/metrics")
    assert status == 200
    assert "pies_total 3.0" in text
    assert kind.startswith("text/plain")


def test_a_collector_that_fails_is_told_of_and_logged(health: Health, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Collector):
        def describe(self) -> list[Metric]:
            return []

        def collect(self) -> list[Metric]:
            raise KeyError("a mistake of ours")

    broken = CollectorRegistry()
    broken.register(Broken())
    with answering_at("127.0.0.1", 0, health, broken) as found:
        status, answer, _ = asked(found, "/metrics")
        assert (status, answer["error"]) == (500, "INTERNAL")
        assert asked(found, "/health/live")[0] == 200
    assert "/metrics could not be answered" in caplog.text
    assert "a mistake of ours" in caplog.text


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [("GET", "/", 404, "NOT_FOUND"), ("POST", "/health/live", 405, "METHOD_NOT_ALLOWED")],
)
def test_what_is_not_there_is_refused_in_words(
    address: tuple[str, int], method: str, path: str, status: int, code: str
) -> None:
    found = asked(address, path, method)
    assert (found[0], found[1]["error"]) == (status, code)
    assert found[1]["message"]


def test_it_answers_who_speaks_no_http(address: tuple[str, int]) -> None:
    with socket.create_connection(address, timeout=30) as raw:
        raw.sendall(b"hello\r\n\r\n")
        assert b"INVALID_ARGUMENT" in raw.makefile("rb").read()
    assert asked(address, "/health/live")[0] == 200


def test_it_answers_while_the_thread_that_should_beat_is_blocked(health: Health, address: tuple[str, int]) -> None:
    """Its own thread is another: the one that beats waits here for the answer, and can do nothing else."""
    health.ready()
    health.beat()
    found: dict[str, Any] = {}
    told = threading.Event()

    def ask() -> None:
        while asked(address, "/health/live")[0] == 200:
            pass
        found["live"], found["ready"] = asked(address, "/health/live"), asked(address, "/health/ready")
        told.set()

    threading.Thread(target=ask, daemon=True).start()
    assert told.wait(30), "it has not noticed"
    assert found["live"][0] == found["ready"][0] == 503
    assert "its loop has not turned" in found["live"][1]["reason"]


def test_who_holds_connections_open_is_hung_up_on_and_what_he_has_is_bounded(address: tuple[str, int]) -> None:
    silent = [socket.create_connection(address, timeout=30) for _ in range(REQUESTS_AT_A_TIME)]
    try:
        with socket.create_connection(address, timeout=30) as one_more:
            assert one_more.recv(1) == b"", "there is no place left"
    finally:
        for each in silent:
            each.close()
    # Places are free again as soon as their threads have noticed.
    for _ in range(1000):
        try:
            with urllib.request.urlopen(f"http://{address[0]}:{address[1]}/health/live", timeout=30) as response:
                assert response.status == 200
                break
        except (urllib.error.URLError, ConnectionError):
            continue
    else:
        pytest.fail("nobody is let in any more")


def test_a_port_of_somebody_else_is_refused_in_words(health: Health, address: tuple[str, int]) -> None:
    with (
        pytest.raises(CannotListen, match=f"127.0.0.1:{address[1]} cannot be listened at: .*--health-port"),
        answering_at("127.0.0.1", address[1], health),
    ):
        pytest.fail("two on one port")


def test_its_thread_ends_with_it(health: Health) -> None:
    with answering_at("127.0.0.1", 0, health) as found:
        pass
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(found, timeout=30)
    assert not [thread for thread in threading.enumerate() if thread.name == "slipstream-health"]
