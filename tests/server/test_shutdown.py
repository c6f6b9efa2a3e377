"""SIGTERM: what is under way is answered, streams end cleanly, the exit code is 0, and a restart finds everything."""

from __future__ import annotations

import json
import signal
import threading
import time

import pytest

from tests.conftest import StartServer
from tests.server_process import ServerProcess


def read_to_the_end(server: ServerProcess, topic: str, opened: threading.Event) -> bytes:
    with server.connect(timeout=30) as connection:
        connection.sendall(f"GET /v1/consume?topic={topic}&group=g&owner=o HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        received = connection.recv(65536)
        opened.set()
        while data := connection.recv(65536):
            received += data
    return received


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_ends_streams_with_their_last_chunk_and_exits_with_0(
    server: ServerProcess, number: signal.Signals
) -> None:
    server.create("t")
    opened = threading.Event()
    received: list[bytes] = []
    reader = threading.Thread(target=lambda: received.append(read_to_the_end(server, "t", opened)))
    reader.start()
    assert opened.wait(10)
    assert server.process is not None
    server.process.send_signal(number)
    assert server.process.wait(30) == 0
    reader.join(30)
    assert received[0].endswith(b"0\r\n\r\n")


def test_a_stop_answers_what_is_under_way(start_server: StartServer) -> None:
    """Requests pipelined and not yet answered when the signal comes: each one answered was stored, and is found."""
    server = start_server()
    server.create("t")
    with server.connect(timeout=30) as connection:
        body = json.dumps({"topic": "t", "value": "v"}).encode()
        one = f"POST /v1/produce HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
        connection.sendall(one * 100)
        received = connection.recv(12)
        assert server.stop() == 0
        try:
            while data := connection.recv(65536):
                received += data
        except ConnectionResetError:
            pass
    answered = received.count(b"HTTP/1.1 200")
    assert answered >= 1
    server.start()
    assert len(server.take("t", answered)) == answered


def test_a_stop_waits_for_a_router_that_is_asked(start_server: StartServer) -> None:
    server = start_server("--router", "tests.router.routers:slow", "--router-timeout-ms", "5000")
    server.create("t")
    with server.connect(timeout=30) as connection:
        connection.sendall(b"POST /v1/produce?topic=t&value=v HTTP/1.1\r\nHost: x\r\n\r\n")
        server.await_log("the slow router was asked")
        assert server.stop() == 0
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")
    server.start()
    assert server.take("t")[0]["value"] == "v"


def test_a_router_that_hangs_does_not_delay_a_stop_for_ever(start_server: StartServer) -> None:
    """The message goes its way after the time-out; the thread that hangs is left behind."""
    server = start_server("--router", "tests.router.routers:hanging", "--router-timeout-ms", "100")
    server.create("t")
    assert server.produce("t", "v").status_code == 200
    assert server.stop() == 0


def test_an_idle_connection_does_not_delay_a_stop(server: ServerProcess) -> None:
    with server.connect() as idle, server.connect() as half:
        half.sendall(b"POST /v1/produce HTTP/1.1\r\nHost: x\r\nContent-")
        assert server.is_well()
        assert server.stop() == 0
        assert idle.recv(1) == b""


def test_a_stream_that_is_not_read_does_not_delay_a_stop_for_ever(start_server: StartServer) -> None:
    server = start_server("--shutdown-timeout-ms", "1000")
    server.create("t")
    for _ in range(20):
        server.produce("t", "x" * 1_000_000)
    with server.connect() as deaf:
        deaf.sendall(b"GET /v1/consume?topic=t&group=g&owner=deaf HTTP/1.1\r\nHost: x\r\n\r\n")
        assert deaf.recv(12) == b"HTTP/1.1 200"
        assert server.stop() == 0
    server.start()
    assert len(server.take("t", 20)) == 20


def test_a_restart_finds_everything(server: ServerProcess) -> None:
    server.create("t", 3)
    for number in range(30):
        server.produce("t", str(number), key=str(number), run_id="r")
    items = server.take("t", 30)
    for item in items[:10]:
        server.ack("t", item)
    server.nack("t", items[10], "boom")
    assert server.stop() == 0
    server.start()
    assert server.topics() == ["t"]
    assert sum(server.metric("consumer_lag", topic="t", group="g", partition=str(n)) for n in range(3)) == 20
    again = server.take("t")[0]
    assert (again["offset"], again["attempts"], again["last_error"]) == (items[10]["offset"], 2, "boom")
    assert again["envelope"] == {"run_id": "r"}
    for item in items[11:]:
        assert server.ack("t", item).status_code == 204, "the leases are still there"


def test_nothing_is_accepted_after_a_stop(server: ServerProcess) -> None:
    server.stop()
    with pytest.raises(ConnectionRefusedError):
        server.connect()


def test_a_read_that_waits_for_messages_is_answered_by_a_stop(start_server: StartServer) -> None:
    server = start_server("--shutdown-timeout-ms", "60000")
    server.create("t")
    with server.connect(timeout=30) as connection:
        connection.sendall(b"GET /v2/topics/t/messages?wait_ms=60000 HTTP/1.1\r\nHost: x\r\n\r\n")
        assert server.is_well()
        began = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - began < 25, "it used to take all the time a stop may take, and be cut off"
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")
