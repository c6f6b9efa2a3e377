"""`slipstream console` as a process: beside a real broker, with all that the environment names."""

from __future__ import annotations

import json
import os
import signal
import socket
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

from slipstream.cli import main
from slipstream.up.lock import locked
from tests.bus.sites.nats import NatsSite
from tests.bus.sites.site import free_port
from tests.conftest import StartServer
from tests.console.site import OURS, console
from tests.pipeline.sample_tables import make_table
from tests.server_process import ServerProcess


def test_the_page_works_on_that_port_alone(server: ServerProcess, tmp_path: Path) -> None:
    server.create("orders")
    server.produce("orders", "two books", key="user:1")
    server.take("orders", group="billing")
    with console(tmp_path, SLIPSTREAM_URL=server.base) as started:
        assert started.get("/console/").headers["Content-Type"].startswith("text/html")
        assert started.get("/v2/topics").json() == server.get("/v2/topics").json()
        assert started.get("/v2/server").json()["bus"] == "slipstream"
        assert started.get("/v2/openapi.json").status_code == 200
        assert started.request("POST", "/v1/produce", {"topic": "orders", "value": "more"}).status_code == 200
        found = started.until("/v2/overview", lambda answer: answer["overview"]["in_flight"] == 1)
        assert found["overview"]["topics"][0]["topic"] == "orders"
        with started.client.stream("GET", started.base + "/v2/events?count=1&interval_ms=100") as stream:
            assert "event: stats" in stream.read().decode()
        hits = started.get("/v2/search?q=orders/0/1").json()["hits"]
        assert [hit["kind"] for hit in hits] == ["message"]
        assert started.stop() == 0
        assert "Traceback" not in started.said


def test_a_broker_with_its_address_shows_the_same(start_server: StartServer, tmp_path: Path) -> None:
    port = free_port()
    broker = start_server("--console-url", f"http://127.0.0.1:{port}")
    root = tmp_path / "tables"
    make_table(root, "messages", [])
    away = broker.get("/v2/tables")
    assert (away.status_code, away.json()["error"]) == (503, "UNAVAILABLE")
    assert broker.get("/console/").status_code == 200, "the page is there to say so"
    with console(tmp_path, "--port", str(port), SLIPSTREAM_URL=broker.base, PIPELINE_TABLES=str(root)) as started:
        assert broker.get("/v2/tables").json() == started.get("/v2/tables").json()
        assert broker.get("/v2/tables").json()["tables"][0]["name"] == "messages"
        with broker.client.stream(
            "GET", broker.base + "/v2/overview", headers={"Accept": "text/event-stream"}
        ) as stream:
            lines = stream.iter_lines()
            assert "event: history" in iter_until(lines, "event: history")
            assert "event: overview" in iter_until(lines, "event: overview")
            assert broker.stop() == 0, "a stream does not keep it from ending"


def iter_until(lines: object, text: str) -> list[str]:
    found: list[str] = []
    for line in lines:  # type: ignore[attr-defined]
        found.append(line)
        if text in line:
            return found
    raise AssertionError(f"it ended without {text!r}: {found}")


def test_a_broker_that_dies_is_told_of_and_found_again(server: ServerProcess, tmp_path: Path) -> None:
    with console(tmp_path, SLIPSTREAM_URL=server.base) as started:
        started.until("/v2/overview", lambda answer: answer["overview"]["problems"] == [])
        server.crash()
        found = started.until("/v2/overview", lambda answer: answer["overview"]["problems"])
        assert found["overview"]["problems"][0]["text"].startswith("the broker has not answered for")
        away = started.get("/v2/topics")
        assert away.status_code == 503
        assert "start it with `slipstream serve`" in away.json()["message"]
        server.start()
        started.until("/v2/overview", lambda answer: answer["overview"]["problems"] == [])


def test_health_and_metrics(tmp_path: Path) -> None:
    with console(tmp_path, SLIPSTREAM_URL=f"http://127.0.0.1:{free_port()}") as started:
        assert started.get("/health/live").json() == {"status": "live"}
        assert started.get("/health/ready").json() == {"status": "ready"}, "to say that a broker is away is its work"
        started.get("/v2/topics/orders")
        said = started.get("/metrics").text
        assert "process_cpu_seconds_total" in said
        assert 'console_requests_total{route="/v2/{rest:path}",status="5xx"} 1.0' in said, "the broker is away"
        assert "console_watching 0.0" in said


def test_what_is_named_and_not_there_is_a_problem_and_what_is_not_named_is_none(tmp_path: Path) -> None:
    away = f"http://127.0.0.1:{free_port()}"
    with console(tmp_path, SLIPSTREAM_URL=away, JOBS_URL=away, SLIP_STORE="nowhere.db") as started:
        found = started.until("/v2/overview", lambda answer: len(answer["overview"]["problems"]) == 3)
        texts = [problem["text"] for problem in found["overview"]["problems"][1:]]
        assert sorted(texts) == ["jobs cannot be seen", "slips cannot be seen"]
    with console(tmp_path, SLIPSTREAM_URL=away, CONSOLE_LOOK_MS="100", JOBS_URL="") as started:
        (problem,) = started.overview()["problems"]
        assert problem["text"].startswith("the broker")


def test_it_shows_nats_where_that_is_the_bus(tmp_path: Path) -> None:
    site = NatsSite()
    try:
        with console(tmp_path, **site.environment()) as started:
            assert started.get("/v2/server").json()["bus"] == "nats"
            assert started.get("/v2/topics").json() == {"topics": []}
            assert started.overview()["problems"] == []
            assert started.request("DELETE", "/v2/topics/orders").status_code == 501
            assert started.stop() == 0
    finally:
        site.close()


def test_parts_are_those_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "parts.json"
    part = {"name": "jobs", "state": "crashed", "restarts": 1, "since_ms": 1, "reason": "exit code 5", "log": []}
    path.write_text(json.dumps({"parts": [part], "pid": os.getpid(), "time_ms": 1}))
    environment = {"SLIPSTREAM_URL": f"http://127.0.0.1:{free_port()}", "SLIPSTREAM_PARTS": str(path)}
    port = ("--port", str(free_port()))
    with locked(tmp_path, patience_s=0, wait=lambda: None), console(tmp_path, *port, **environment) as started:
        assert started.get("/v2/parts").json()["parts"][0]["reason"] == "exit code 5"
        texts = [problem["text"] for problem in started.overview()["problems"]]
        assert "part jobs has crashed, and was restarted once before" in texts
        assert port[1] not in started.said, "people use the address of the broker"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_as_asked_with_a_stream_open(shared: ServerProcess, tmp_path: Path, number: signal.Signals) -> None:
    with (
        console(tmp_path, SLIPSTREAM_URL=shared.base) as started,
        httpx.stream(
            "GET", started.base + "/v2/overview", headers={"Accept": "text/event-stream"}, timeout=30
        ) as stream,
    ):
        lines = stream.iter_lines()
        iter_until(lines, "event: overview")
        started.process.send_signal(number)
        assert started.wait() == 0
        assert "Traceback" not in started.said


@pytest.mark.parametrize(
    ("arguments", "variables", "words"),
    [
        ([], {"CONSOLE_SQL_ROWS": "many"}, "CONSOLE_SQL_ROWS='many': a number is wanted"),
        (["--port", "99999"], {}, "99999"),
        ([], {"MESSAGE_BUS_DRIVER": "carrier-pigeon"}, "MESSAGE_BUS_DRIVER"),
    ],
)
def test_a_setting_that_makes_no_sense_is_named(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], variables: dict[str, str], words: str
) -> None:
    assert words in refused(monkeypatch, *arguments, **variables)


def test_a_port_in_use_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert f"127.0.0.1:{port} cannot be listened at" in refused(monkeypatch, "--port", port)


def refused(monkeypatch: pytest.MonkeyPatch, *arguments: str, **variables: str) -> str:
    """Return what the command says before it ends with exit code 2."""
    for name in os.environ:
        if name.startswith(OURS):
            monkeypatch.delenv(name)
    environment = {"NO_COLOR": "1", "COLUMNS": "200", **variables}
    result = CliRunner().invoke(main, ["console", *arguments], env=environment)
    assert result.exit_code == 2, result.output
    return " ".join(result.stderr.split())
