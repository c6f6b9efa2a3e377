"""One request and its answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from slipstream.broker import BrokerError
from slipstream.server.request_head import NO_TYPES, Types
from slipstream.server.response import render_broker_error, with_headers

if TYPE_CHECKING:
    from slipstream.server.connection import Connection


class Pending(Protocol):
    """What answers an exchange later, by itself."""

    def answer_now(self) -> None:
        """The server stops: answer with what there is."""
        ...

    def abandon(self) -> None:
        """The client has gone."""
        ...


class Exchange:
    """Answers leave a connection in the order of the requests, whenever they become known."""

    __slots__ = (
        "body",
        "close",
        "connection",
        "done",
        "method",
        "pending",
        "plain",
        "query",
        "refusal",
        "request_id",
        "response",
        "types",
    )

    def __init__(
        self,
        connection: Connection,
        method: bytes,
        query: bytes,
        body: bytes,
        request_id: bytes | None,
        close: bool,
        types: Types = NO_TYPES,
    ) -> None:
        self.connection = connection
        self.method = method
        self.query = query
        self.body = body
        self.request_id = request_id
        self.close = close
        """The connection ends with this answer."""
        self.plain = request_id is None and not close and method != b"HEAD"
        """The response goes out as it is."""
        self.types = types
        self.pending: Pending | None = None
        self.response = b""
        self.done = False
        self.refusal = False
        """The request could not be read to its end, and the client may still be sending it."""

    def answer(self, response: bytes) -> None:
        self.response = response
        self.done = True
        self.connection.send_answers()

    def settled(self, error: BrokerError | None) -> None:
        """The engine is through with the command; whoever gave it has put the response here."""
        if error is not None:
            self.response = render_broker_error(error)
        self.done = True
        self.connection.send_answers()

    def end_connection(self) -> None:
        self.close = True
        self.plain = False

    def rendered(self) -> bytes:
        response = self.response
        if self.request_id is not None:
            response = with_headers(response, b"X-Request-Id: " + self.request_id + b"\r\n")
        if self.close:
            response = with_headers(response, b"Connection: close\r\n")
        if self.method == b"HEAD":
            response = response[: response.index(b"\r\n\r\n") + 4]
        return response
