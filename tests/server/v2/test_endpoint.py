"""One call from its request to its answer, while others change what it is about."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message

from slipstream.api import ARROW
from slipstream.engine import read_slice
from slipstream.limits import Limits
from slipstream.server.v2 import read
from slipstream.server.v2.endpoint import serve_call
from slipstream.server.v2.endpoints import COLD
from slipstream.store import LogSlice
from tests.store.node import Node

GROUP = "/v2/topics/{topic}/groups/{group}"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """With a topic that has been read from, and is not finished."""
    with Node(tmp_path) as running:
        running.create("t")
        running.produce("t", b"v")
        running.take("t", 1)
        yield running


async def serve(node: Node, method: str, path: str, body: object = None, accept: str = "") -> Response:
    [endpoint] = [each for each in COLD if (each.method, each.path) == (method, path)]
    scope = {
        "type": "http",
        "method": method,
        "headers": [(b"accept", accept.encode())],
        "query_string": b"",
        "path_params": {"topic": "t", "group": "g"},
        "app": type("App", (), {"state": type("State", (), {"stopping": asyncio.Event()})}),
    }

    async def receive() -> Message:
        return {"type": "http.request", "body": msgspec.json.encode(body or {}), "more_body": False}

    return await serve_call(endpoint, node.engine, Limits(), Request(scope, receive))


def check_said(response: Response) -> None:
    assert (response.status_code, msgspec.json.decode(bytes(response.body))) == (
        404,
        {"error": "NOT_FOUND", "message": "t was deleted meanwhile"},
    )


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v2/topics", {"name": "t"}),
        ("PATCH", "/v2/topics/{topic}", {"config": {"max_in_flight": 1}}),
        ("POST", GROUP + "/seek", {"to": "earliest"}),
        ("POST", GROUP + "/pause", None),
        ("POST", GROUP + "/resume", None),
    ],
)
def test_a_topic_that_is_deleted_before_the_answer_is_404(node: Node, method: str, path: str, body: object) -> None:
    """Both are in one commit. What was to be described had no log any more, which was a 500."""

    async def both() -> Response:
        response, _ = await asyncio.gather(serve(node, method, path, body), node.engine.delete_topic("t"))
        return response

    check_said(node.loop.run_until_complete(both()))


@pytest.mark.parametrize("accept", ["application/json", ARROW])
def test_a_topic_that_is_deleted_while_it_is_read_is_404(
    node: Node, monkeypatch: pytest.MonkeyPatch, accept: str
) -> None:
    async def read_and_delete(take: Callable[[], LogSlice], how: Callable[[LogSlice], Any]) -> Any:
        found = await read_slice(take, how)
        await node.engine.delete_topic("t")
        return found

    monkeypatch.setattr(read, "read_slice", read_and_delete)
    check_said(node.loop.run_until_complete(serve(node, "GET", "/v2/topics/{topic}/messages", accept=accept)))
