"""A connection without a network: what it does between two turns of the loop, which no client can time."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from uvicorn.config import Config
from uvicorn.server import ServerState

from slipstream.limits import Limits
from slipstream.server.connection import Connection
from slipstream.server.front import Front
from slipstream.server.v1 import V1
from tests.store.node import Node


class Wire(asyncio.Transport):
    """Keeps what is written; `close` waits, as it does while something is still to be sent."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closing = False

    def write(self, data: Any) -> None:
        self.written += bytes(data)

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


def connect(node: Node, v1: V1 | None = None) -> tuple[Connection, Wire]:
    v1 = v1 or V1(node.engine, None)
    front = Front(node.engine, v1.routes, Limits())
    bound = type("Bound", (Connection,), {"front": front})
    connection, wire = bound(Config(None, lifespan="off"), ServerState(), {}, node.loop), Wire()  # type: ignore[arg-type]
    connection.connection_made(wire)
    return connection, wire


def test_what_is_stored_while_a_stream_ends_is_not_leased_to_it(tmp_path: Path) -> None:
    """Or it would wait for a lease to run out that nobody knows of, and have lost an attempt."""
    with Node(tmp_path) as node:
        node.create("t")
        connection, wire = connect(node)
        connection.data_received(b"GET /v1/consume?topic=t&group=g&owner=o HTTP/1.1\r\nHost: x\r\n\r\n")
        assert wire.written.startswith(b"HTTP/1.1 200 OK")
        connection.shutdown()
        node.produce("t", b"late")
        assert node.engine.broker.topic("t").groups["g"].progress[0].leases == {}
        connection.connection_lost(None)


def test_answers_are_kept_ready_for_topics_that_exist_only(tmp_path: Path) -> None:
    """Where the message goes elsewhere, the topic that was asked for can be any text, and another one each time."""
    with Node(tmp_path) as node:
        node.create("t")
        v1 = V1(node.engine, None)
        connection, wire = connect(node, v1)
        for number in range(10):
            body = b'{"topic":"%d","value":"v","envelope":{"target_topic":"t"}}' % number
            connection.data_received(
                b"POST /v1/produce HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
            )
        node.until(lambda: wire.written.count(b"HTTP/1.1 200") == 10)
        assert b'"topic":"9"' in wire.written
        assert v1._produced == {}
        connection.connection_lost(None)
