"""One HTTP connection: hot paths answered here, everything else handed to the ASGI application on the same port.

Subclasses uvicorn's httptools protocol, which keeps TLS, flow control and shutdown. What is added: requests to `/v1`
never become an ASGI scope, several of them may be under way on one connection, and all that a client sends is bounded.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Any

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from slipstream.engine import Engine
from slipstream.server.exchange import Exchange
from slipstream.server.limits import Limits
from slipstream.server.response import render_error
from slipstream.server.stream import Stream
from slipstream.server.v1 import V1, Route

log = logging.getLogger(__name__)

LINGER_BYTES = 4 << 20
"""How much of a refused request is read and thrown away so that its sender gets to see the answer."""


class Front:
    """What all connections of a server share."""

    def __init__(self, engine: Engine, v1: V1, limits: Limits, sweep_ms: int = 1_000) -> None:
        self.engine = engine
        self.v1 = v1
        self.limits = limits
        self.sweep_ms = sweep_ms
        self.heads = HeadMemo()
        self.refused: dict[int, int] = {}
        """Status → how many requests were cut off while they were still being read."""

    def sweeps(self, timeout_ms: int) -> int:
        return max(1, timeout_ms // self.sweep_ms)


class Head:
    """What a request head says, for one that was parsed before."""

    __slots__ = ("length", "method", "query", "route")

    def __init__(self, route: Route, method: bytes, query: bytes, length: int) -> None:
        self.route = route
        self.method = method
        self.query = query
        self.length = length


class HeadMemo(dict[bytes, Head]):
    """Request heads seen before, byte for byte.

    A client sends the same few heads again and again; only Content-Length varies. The same bytes at the start of a
    message mean the same thing, so the parser need not be asked twice. It is most of the cost of a small request.
    """

    ENTRIES_MAX = 4_096
    HEAD_BYTES_MAX = 1_024

    def remember(self, head: bytes, meaning: Head) -> None:
        if len(head) > self.HEAD_BYTES_MAX:
            return
        if len(self) >= self.ENTRIES_MAX:
            self.clear()
        self[head] = meaning


class Connection(HttpToolsProtocol):
    """Reads requests, keeps their answers in order, and looks after itself in `sweep`."""

    front: Front

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._answers: deque[Exchange] = deque()
        self._stream: Stream | None = None
        self._cold: tuple[RequestResponseCycle, Any] | None = None
        """An ASGI request that waits for the answers before it."""
        self._held: deque[tuple[Route, Exchange]] = deque()
        """Hot requests that wait for the ASGI request before them."""
        self._reading_paused = False
        self._unhindered = True
        """Nothing waits for the last answer to be written."""
        self._refusing = False
        self._lingered = 0
        self._quiet_sweeps = 0
        self._receiving_sweeps = 0
        # The request being received
        self._in_message = False
        self._chunk = b""
        self._chunk_starts_message = False
        self._route: Route | None = None
        self._head_bytes = 0
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._length: int | None = None
        self._request_id: bytes | None = None
        self._plain = True

    # Transport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.front.limits.connections:
            transport.write(render_error(503, "UNAVAILABLE", "too many connections; try again later"))
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._stream is not None:
            stream, self._stream = self._stream, None
            if stream.consumer is not None:
                self.front.engine.detach(stream.consumer)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._quiet_sweeps = 0
        if self._refusing:
            self._lingered += len(data)
            if self._lingered > LINGER_BYTES:
                self.transport.close()
            return
        if self._stream is not None:
            self.transport.abort()  # a stream is answered until it ends; there is nothing to say on it
            return
        if not self._in_message:
            end = data.find(b"\r\n\r\n") + 4
            head = self.front.heads.get(data[:end])
            if head is not None and head.length == len(data) - end:
                exchange = Exchange(self, head.method, head.query, data[end:], None, False)
                self._begin(head.route, exchange)
                return
        self._parse(data)

    def _parse(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        self._chunk = data
        self._chunk_starts_message = not self._in_message
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._refuse(400, "INVALID_ARGUMENT", "protocol upgrades are not supported here")
        except httptools.HttpParserError as error:
            self._refuse(400, "INVALID_ARGUMENT", f"this is not HTTP: {error}")
        self._chunk = b""

    # Parser callbacks

    def on_message_begin(self) -> None:
        self._in_message = True
        self._receiving_sweeps = 0
        self.url = b""
        self.headers = []
        self._route = None
        self._head_bytes = 0
        self._body = []
        self._body_bytes = 0
        self._length = None
        self._request_id = None
        self._plain = True
        self.expect_100_continue = False

    def on_url(self, url: bytes) -> None:
        self.url += url
        if len(self.url) > self.front.limits.line_bytes:
            self._refuse(414, "URI_TOO_LONG", f"the request line is limited to {self.front.limits.line_bytes} bytes")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_bytes += len(name) + len(value)
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        limits = self.front.limits
        if self._head_bytes > limits.header_bytes or len(self.headers) > limits.headers:
            self._refuse(
                431,
                "HEADERS_TOO_LARGE",
                f"headers are limited to {limits.headers} and {limits.header_bytes} bytes in all",
            )
        if self._refusing:
            return
        self._read_headers()
        if self._length is not None and self._length > limits.body_bytes:
            self._refuse_body()
            return
        path, _, _ = self.url.partition(b"?")
        self._route = self.front.v1.routes.get(path)
        if self._route is None:
            self._begin_cold()
        elif self.expect_100_continue and not self._answers:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _read_headers(self) -> None:
        for name, value in self.headers:
            match name.lower():
                case b"content-length":
                    self._length = int(value)
                case b"x-request-id":
                    self._request_id = value[:200]
                    self._plain = False
                case b"transfer-encoding":
                    self._plain = False
                case b"expect":
                    self.expect_100_continue = value.lower() == b"100-continue"
                    self._plain = False

    def on_body(self, body: bytes) -> None:
        if self._refusing:
            return
        self._body_bytes += len(body)
        if self._body_bytes > self.front.limits.body_bytes:
            self._refuse_body()
        elif self._route is None:
            super().on_body(body)
        else:
            self._body.append(body)

    def on_message_complete(self) -> None:
        self._in_message = False
        if self._refusing:
            return
        route = self._route
        if route is None:
            super().on_message_complete()
            return
        method: bytes = self.parser.get_method()
        _, _, query = self.url.partition(b"?")
        keep_alive = self.parser.get_http_version() != "1.0" and self.parser.should_keep_alive()
        body = b"".join(self._body)
        if self._plain and keep_alive and self._chunk_starts_message:
            head = self._chunk[: self._chunk.find(b"\r\n\r\n") + 4]
            if len(head) + len(body) == len(self._chunk):
                self.front.heads.remember(head, Head(route, method, query, len(body)))
        self._chunk_starts_message = False
        self._begin(route, Exchange(self, method, query, body, self._request_id, not keep_alive))

    # Hot requests

    def _begin(self, route: Route, exchange: Exchange) -> None:
        if self._cold is not None or self._cold_runs:
            self._held.append((route, exchange))
            self._pause_reading()
            return
        self._answers.append(exchange)
        if len(self._answers) > self.front.limits.pipelined:
            self._pause_reading()
        self.front.v1.handle(route, exchange)

    def send_answers(self) -> None:
        """Writes every answer that is known and whose predecessors are written."""
        answers = self._answers
        if len(answers) == 1 and self._unhindered and answers[0].plain:
            # Nearly every answer: the only one, nothing to add to it, nobody waiting behind it.
            exchange = answers[0]
            if exchange.done:
                answers.clear()
                if not self.transport.is_closing():
                    self.transport.write(exchange.response)
            return
        while answers and answers[0].done:
            exchange = answers.popleft()
            if self.transport.is_closing():
                continue
            self.transport.write(exchange.rendered())
            if exchange.close:
                self._linger() if self._refusing else self.transport.close()
        if answers or self.transport.is_closing():
            return
        if self._reading_paused:
            self._resume_reading()
        if self._cold is not None:
            cold, self._cold = self._cold, None
            super()._start_asgi_task(*cold)
        self._unhindered = True

    def open_stream(self, exchange: Exchange, topic: str, group: str, owner: str, lease_ms: int) -> None:
        """The connection belongs to the stream from here on."""
        stream = Stream(self, chunked=not exchange.close or self.parser.get_http_version() != "1.0")
        stream.consumer = self.front.engine.attach(topic, group, owner, lease_ms, stream)
        # Requests pipelined before it are answered first: their answers are all that may stand in the queue.
        self._answers.remove(exchange)
        self._stream = stream
        stream.begin(exchange.request_id)

    # Cold requests

    @property
    def _cold_runs(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _begin_cold(self) -> None:
        """From here on uvicorn's own protocol takes the request."""
        url, headers = self.url, self.headers
        super().on_message_begin()
        self.url = url
        for name, value in headers:
            super().on_header(name, value)
        super().on_headers_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        if self._answers:
            self._cold = (cycle, app)
            self._pause_reading()
        else:
            super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._unset_keepalive_if_required()  # the sweep looks after idle connections
        while self._held and not self._cold_runs and self._cold is None:
            self._begin(*self._held.popleft())

    # Refusals

    def _refuse_body(self) -> None:
        limit = self.front.limits.body_bytes
        self._refuse(413, "PAYLOAD_TOO_LARGE", f"a request body is limited to {limit} bytes")

    def _refuse(self, status: int, code: str, message: str) -> None:
        """The request cannot be read to its end: answer it in its turn, then close."""
        if self._refusing or self.transport.is_closing():
            return
        self._refusing = True
        self.front.refused[status] = self.front.refused.get(status, 0) + 1
        if self._cold_runs or self._cold is not None:
            self.transport.close()
            return
        exchange = Exchange(self, b"", b"", b"", self._request_id, True)
        self._answers.append(exchange)
        exchange.answer(render_error(status, code, message))

    def _linger(self) -> None:
        """Closing while the client still sends would reset the connection and lose the answer on its way."""
        if self.transport.can_write_eof():
            self.transport.write_eof()
        else:
            self.transport.close()

    # Flow control

    def _pause_reading(self) -> None:
        self._unhindered = False
        if not self._reading_paused:
            self._reading_paused = True
            self.flow.pause_reading()

    def _resume_reading(self) -> None:
        self._reading_paused = False
        self.flow.resume_reading()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._stream is not None and self._stream.consumer is not None:
            self._stream.consumer.open = False

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stream is not None and self._stream.consumer is not None:
            self._stream.stalled_sweeps = 0
            self.front.engine.reopen(self._stream.consumer)

    # Time and shutdown

    def sweep(self) -> None:
        """Once a second: closes what has gone quiet, sends too slowly or does not read."""
        limits, sweeps = self.front.limits, self.front.sweeps
        self._quiet_sweeps += 1
        if self._stream is not None:
            stream = self._stream
            if stream.consumer is not None and not stream.consumer.open:
                stream.stalled_sweeps += 1
                if stream.stalled_sweeps > sweeps(limits.stall_timeout_ms):
                    log.warning("dropping a stream of owner %s that does not read", stream.consumer.owner)
                    self.transport.abort()
        elif self._refusing:
            if self._quiet_sweeps > 2:
                self.transport.close()
        elif self._in_message:
            self._receiving_sweeps += 1
            if self._receiving_sweeps > sweeps(limits.receive_timeout_ms):
                self._refuse(408, "REQUEST_TIMEOUT", f"the request took longer than {limits.receive_timeout_ms} ms")
        elif not self._answers and not self._cold_runs and self._quiet_sweeps > sweeps(limits.idle_timeout_ms):
            self.transport.close()

    def shutdown(self) -> None:
        """Answers what is under way, then closes."""
        if self._stream is not None:
            self._stream.end()
        elif self._answers:
            self._answers[-1].end_connection()
        else:
            super().shutdown()
