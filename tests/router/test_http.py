"""A router behind HTTP, on a real if tiny server."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias

import pytest

from slipstream.broker import Envelope, RoutingDecision
from slipstream.router import RoutedMessage, RouterHook, load_router

Answer: TypeAlias = Callable[[dict[str, Any]], tuple[int, bytes]]


class Endpoint:
    """Remembers what it was asked, and answers what the test tells it to."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.answer: Answer = lambda _: (204, b"")
        self.released = threading.Event()
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                endpoint.asked.append(question)
                status, body = endpoint.answer(question)
                with contextlib.suppress(ConnectionError):  # who timed out is gone
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as it is called there
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/route"


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    endpoint = Endpoint()
    thread = threading.Thread(target=endpoint.server.serve_forever, args=(0.01,))
    thread.start()
    yield endpoint
    endpoint.released.set()
    endpoint.server.shutdown()
    thread.join()
    endpoint.server.server_close()


def decide(url: str, message: RoutedMessage, timeout_ms: int = 5_000) -> tuple[RoutingDecision | None, RouterHook]:
    async def ask() -> tuple[RoutingDecision | None, RouterHook]:
        hook = load_router(url, timeout_ms)
        decision = await hook.decide("t", message)
        await hook.close()
        return decision, hook

    return asyncio.run(ask())


def test_it_is_asked_with_the_message_and_its_decision_is_taken(endpoint: Endpoint) -> None:
    endpoint.answer = lambda _: (
        200,
        b'{"label": "l", "target_topic": "x", "meta": {"a": "b"}, "partition_override": 2}',
    )
    decision, hook = decide(endpoint.url, RoutedMessage(b"k", b"v", Envelope(run_id="r")))
    assert decision == RoutingDecision("l", "x", 2, {"a": "b"})
    assert endpoint.asked == [{"topic": "t", "key": "k", "value": "v", "envelope": {"run_id": "r"}}]
    assert (hook.decided_total, hook.failed_total) == (1, 0)


def test_what_is_not_text_is_asked_in_base64(endpoint: Endpoint) -> None:
    decide(endpoint.url, RoutedMessage(b"k", b"\xff"))
    question = endpoint.asked[0]
    assert question["encoding"] == "base64"
    assert (base64.b64decode(question["key"]), base64.b64decode(question["value"])) == (b"k", b"\xff")


def test_204_is_no_opinion(endpoint: Endpoint) -> None:
    decision, hook = decide(endpoint.url, RoutedMessage(b"", b"v"))
    assert decision is None
    assert hook.failed_total == 0


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (500, b"{}"),
        (404, b"{}"),
        (302, b"{}"),
        (200, b""),
        (200, b"not json"),
        (200, b"[]"),
        (200, b'{"lable": "typo"}'),
        (200, b'{"partition_override": "one"}'),
    ],
)
def test_an_answer_that_is_none_is_logged_and_counted(
    endpoint: Endpoint, status: int, body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Ruling 13."""
    endpoint.answer = lambda _: (status, body)
    decision, hook = decide(endpoint.url, RoutedMessage(b"", b"v"))
    assert decision is None
    assert hook.failed_total == 1
    assert "the router fails" in caplog.text


def test_a_time_out_is_logged_and_counted(endpoint: Endpoint, caplog: pytest.LogCaptureFixture) -> None:
    """Ruling 13."""

    def hang(_: dict[str, Any]) -> tuple[int, bytes]:
        endpoint.released.wait(30)
        return 204, b""

    endpoint.answer = hang
    decision, hook = decide(endpoint.url, RoutedMessage(b"", b"v"), timeout_ms=50)
    endpoint.released.set()
    assert decision is None
    assert hook.failed_total == 1
    assert "router" in caplog.text


def test_nobody_there_is_logged_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    """Ruling 13."""
    decision, hook = decide("http://127.0.0.1:1/route", RoutedMessage(b"", b"v"))
    assert decision is None
    assert hook.failed_total == 1
    assert "the router fails" in caplog.text
