"""A consume stream: NDJSON, one chunk per batch of deliveries, for as long as the client stays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slipstream.broker import Consumer, Delivery
from slipstream.server.response import DATE
from slipstream.server.v1 import encode_item

if TYPE_CHECKING:
    from slipstream.server.connection import Connection


class Stream:
    """The sink of one consumer."""

    __slots__ = ("_chunked", "_connection", "consumer")

    def __init__(self, connection: Connection, *, chunked: bool) -> None:
        self._connection = connection
        self._chunked = chunked
        self.consumer: Consumer | None = None

    def begin(self, request_id: bytes | None) -> None:
        """The headers go out at once, not with the first message (ruling 11)."""
        head = [
            b"HTTP/1.1 200 OK\r\n",
            DATE.line,
            b"Content-Type: application/x-ndjson; charset=utf-8\r\n"
            b"Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n",
            b"Transfer-Encoding: chunked\r\n" if self._chunked else b"Connection: close\r\n",
        ]
        if request_id is not None:
            head += [b"X-Request-Id: ", request_id, b"\r\n"]
        head.append(b"\r\n")
        self._connection.transport.write(b"".join(head))

    def deliver(self, deliveries: list[Delivery]) -> None:
        if self._connection.transport.is_closing():
            return  # the leases run out, and somebody else gets them
        data = b"".join(map(encode_item, deliveries))
        if self._chunked:
            data = b"%x\r\n%b\r\n" % (len(data), data)
        self._connection.transport.write(data)

    def ended(self) -> None:
        """The group or topic is gone: a client that asks again is told so."""
        self.consumer = None
        self.end()

    def end(self) -> None:
        """A clean end: the client can tell it from a broken connection."""
        if self._chunked:
            self._connection.transport.write(b"0\r\n\r\n")
        self._connection.transport.close()
