"""One HTTP connection: hot paths answered here, everything else handed to the ASGI application on the same port.

Subclasses uvicorn's httptools protocol, which keeps TLS, flow control and shutdown. What is added: requests to `/v1`
never become an ASGI scope, several of them may be under way on one connection, and all that a client sends is bounded.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Any, TypeAlias

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from slipstream.origins import READING, REFUSAL
from slipstream.server.exchange import Exchange
from slipstream.server.front import Front, Head
from slipstream.server.request_head import NO_HEAD, HeadRefused, read_head, split_target, unknown_method
from slipstream.server.response import not_found, render_error
from slipstream.server.route import Route
from slipstream.server.stream import Stream

log = logging.getLogger(__name__)

LINGER_BYTES = 256 << 20
"""How much of a refused request is read and discarded at most, so that its sender reads the answer: most clients send
the whole body first. It takes no memory, and no longer than a request may take to arrive."""
LINGER_QUIET_SWEEPS = 2
"""A sender of a refused request that sends nothing for so long has the answer."""

EXCESS_ANSWERED = 64
"""Connections over the limit that are told so; beyond that they are only cut off."""

CHUNKED_OVERHEAD = 8
"""A byte in a chunk of its own takes 6 on the wire, and some clients write longer sizes."""

_Turn: TypeAlias = "tuple[Route | None, Exchange | tuple[RequestResponseCycle, Any]]"
"""A hot request with its route, or one for the application; a refusal has no route."""


class Connection(HttpToolsProtocol):
    """Reads requests, keeps their answers in order, and looks after itself in `sweep`.

    Hot requests run side by side and are answered in turn. A request to the application, and a stream, run alone: what
    comes before them is answered first, and what comes after them waits.
    """

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
        """Hot requests under way, in the order of their answers."""
        self._running: RequestResponseCycle | None = None
        """The ASGI request under way."""
        self._stream: Stream | None = None
        self._waiting: deque[_Turn] = deque()
        """Requests that may not start yet."""
        self._advancing = False
        self._deaf = False
        """No further request is taken: the last one was refused, or asked for the end of the connection."""
        self._finishing = False
        """Close when nothing is left to answer."""
        self._lingering_sweeps: int | None = None
        self._lingered = 0
        self._quiet_sweeps = 0
        self._receiving_sweeps = 0
        self._stalled_sweeps = 0
        self._unsent = 0
        self._last_head: Head | None = None
        """Of the last request that needed no parsing; the next one is mostly like it."""
        # The request being received
        self._in_message = False
        self._head_done = False
        self._cold_begun = False
        self._received = 0
        self._chunk = b""
        self._chunk_starts_message = False
        self._route: Route | None = None
        self._head_bytes = 0
        self._header_count = 0
        self._head = NO_HEAD
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._body_bytes_max = 0

    # Transport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        excess = len(self.connections) - self.front.limits.connections
        if excess > EXCESS_ANSWERED:
            transport.abort()
        elif excess > 0:
            self._refuse(503, "UNAVAILABLE", "too many connections; try again later")

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave_group()
        self._stream = None
        self._waiting.clear()
        for exchange in self._answers:
            if exchange.pending is not None:
                exchange.pending.abandon()
        if self._running is not None:
            self._running.disconnected = True
            self._running.message_event.set()
        super().connection_lost(exc)

    def eof_received(self) -> bool:  # type: ignore[override]
        """The client has nothing more to say; it may still want to hear the answers (`nc`, `shutdown(SHUT_WR)`)."""
        self._finishing = True
        for exchange in list(self._answers):
            if exchange.pending is not None:
                # It is more likely to have gone than to be waiting for messages that are yet to come.
                exchange.pending.answer_now()
        return bool(self._answers or self._waiting or self._running is not None) and self.scheme == "http"

    def data_received(self, data: bytes) -> None:
        self._quiet_sweeps = 0
        if self._deaf:
            self._lingered += len(data)
            if self._lingered > max(LINGER_BYTES, self.front.limits.batch_bytes):
                self.transport.close()
            return
        if self._stream is not None:
            self.transport.abort()  # a stream is answered until it ends; there is nothing to say on it
            return
        if not self._in_message:
            head = self._last_head
            if head is None or len(data) != head.total or not data.startswith(head.data):
                head = self._last_head = self.front.heads.find(data)
            if head is not None:
                self._begin(head.route, Exchange(self, head.method, b"", data[head.size :], None, False, head.types))
                return
        self._parse(data)

    def _parse(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        self._chunk = data
        self._chunk_starts_message = not self._in_message
        self._received += len(data)  # starts again at 0 with each message that begins in this chunk
        pieces: deque[bytes | memoryview] = deque([data])
        try:
            while pieces and not self._deaf:
                self._feed(pieces)
        except httptools.HttpParserInvalidMethodError as error:
            self._refuse_method(unknown_method(data) if self._chunk_starts_message else None, error)
        except httptools.HttpParserError as error:
            self._refuse(400, "INVALID_ARGUMENT", f"this is not HTTP: {error}")
        self._chunk = b""
        if self._in_message:
            self._check_received()

    def _feed(self, pieces: deque[bytes | memoryview]) -> None:
        piece = pieces.popleft()
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserUpgrade as upgrade:
            if self.parser.get_method() == b"CONNECT":
                self._refuse(400, "INVALID_ARGUMENT", "this is not a proxy")
            else:
                rest = memoryview(piece)[upgrade.args[0] :]
                pieces.extend((self._without_offer(), rest) if rest else (self._without_offer(),))

    def _without_offer(self) -> bytes:
        """The head just read, to be read again without its offer of another protocol.

        Such an offer may be ignored, and must be: some clients make it with every request. But the parser takes all
        that comes behind it for the other protocol, a body too.
        """
        method, version = self.parser.get_method(), self.parser.get_http_version()
        kept = [b"%b: %b\r\n" % header for header in self.headers if header[0].lower() != b"upgrade"]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._chunk_starts_message = False
        return b"%b %b HTTP/%b\r\n%b\r\n" % (method, self.url, version.encode(), b"".join(kept))

    def _check_received(self) -> None:
        """What the parser itself holds on to (half a header, the sizes of chunks, trailers) is bounded as well."""
        limits = self.front.limits
        head_bytes = limits.line_bytes + limits.header_bytes
        if not self._head_done:
            if self._received > head_bytes:
                self._refuse_headers()
        elif self._received > head_bytes + CHUNKED_OVERHEAD * self._body_bytes_max:
            self._refuse_body()

    # Parser callbacks

    def on_message_begin(self) -> None:
        self._in_message = True
        self._head_done = False
        self._cold_begun = False
        self._received = 0
        self._receiving_sweeps = 0
        self.url = b""
        self.headers = []
        self._route = None
        self._head_bytes = 0
        self._header_count = 0
        self._head = NO_HEAD
        self._body = []
        self._body_bytes = 0
        self._body_bytes_max = self.front.limits.body_bytes
        self.expect_100_continue = False
        if self._stream is not None:
            self.transport.abort()  # as in data_received
            self._deaf = True

    def on_url(self, url: bytes) -> None:
        if self._deaf:
            return
        self.url += url
        if len(self.url) > self.front.limits.line_bytes:
            self._refuse(414, "URI_TOO_LONG", f"the request line is limited to {self.front.limits.line_bytes} bytes")

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._deaf:
            return
        self._head_bytes += len(name) + len(value)
        self._header_count += 1
        limits = self.front.limits
        if self._head_bytes > limits.header_bytes or self._header_count > limits.headers:
            self._refuse_headers()
        elif not self._head_done:  # what comes after the body is a trailer, and no business of ours
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        self._head_done = True
        if self._deaf or self.parser.should_upgrade():
            return
        version = self.parser.get_http_version()
        if version not in {"1.0", "1.1"}:
            self._refuse(400, "INVALID_ARGUMENT", "this server speaks HTTP 1.1 and 1.0")
            return
        self.url, authority = split_target(self.url)
        try:
            self._head = read_head(version, authority, self.headers)
        except HeadRefused as refused:
            self._refuse(refused.status, refused.code, refused.message)
            return
        self.expect_100_continue = self._head.expects_continue
        path, _, _ = self.url.partition(b"?")
        self._route = self.front.routes.get(path)
        if self._head.is_foreign and not self._is_reading():
            self._refuse(403, "PERMISSION_DENIED", REFUSAL)
            return
        if self._route is not None and self._route.body_bytes is not None:
            self._body_bytes_max = self._route.body_bytes
        if self._head.length is not None and self._head.length > self._body_bytes_max:
            self._refuse_body()
            return
        if self._route is None:
            self._begin_cold()
        elif self.expect_100_continue and not self._busy and version != "1.0":
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _is_reading(self) -> bool:
        takes = self._route is not None and self._route.takes
        return not takes and self.parser.get_method().decode() in READING

    def on_body(self, body: bytes) -> None:
        if self._deaf:
            return
        self._body_bytes += len(body)
        if self._body_bytes > self._body_bytes_max:
            self._refuse_body()
        elif self._route is None:
            super().on_body(body)
        else:
            self._body.append(body)

    def on_message_complete(self) -> None:
        self._in_message = False
        self._cold_begun = False
        is_first, self._chunk_starts_message = self._chunk_starts_message, False
        if self._deaf or self.parser.should_upgrade():
            return
        keep_alive = self.parser.get_http_version() != "1.0" and self.parser.should_keep_alive()
        self._deaf = not keep_alive
        head, self._head = self._head, NO_HEAD
        route = self._route
        if route is None:
            super().on_message_complete()
            return
        method: bytes = self.parser.get_method()
        _, _, query = self.url.partition(b"?")
        body = b"".join(self._body)
        if head.is_plain and keep_alive and is_first and not query:
            size = self._chunk.find(b"\r\n\r\n") + 4
            if size + len(body) == len(self._chunk):
                self.front.heads.remember(Head(self._chunk[:size], route, method, len(body), head.types))
        self._begin(route, Exchange(self, method, query, body, head.request_id, not keep_alive, head.types))

    # Whose turn it is

    @property
    def _busy(self) -> bool:
        return bool(self._answers or self._waiting or self._running is not None)

    def _begin(self, route: Route, exchange: Exchange) -> None:
        # Nearly every request finds the connection at rest, and then nothing further need be asked.
        at_rest = not (self._answers or self._waiting or self.flow.write_paused) and self._running is None
        if at_rest or (not self._waiting and self._may_begin(route)):
            self._answers.append(exchange)
            route.handle(route, exchange)
        else:
            self._wait((route, exchange))

    def _may_begin(self, route: Route | None) -> bool:
        """A route, or None for the application."""
        if self._running is not None or self._stream is not None or self.flow.write_paused:
            return False
        answers = len(self._answers)
        return answers == 0 if route is None or route.alone else answers < self.front.limits.pipelined

    def _wait(self, turn: _Turn) -> None:
        self._waiting.append(turn)
        self.flow.pause_reading()

    def _advance(self) -> None:
        """Starts what may start now, and reads on when nothing waits any more."""
        if self._advancing:
            return  # an answer known at once comes back here; a loop does not run out of stack
        self._advancing = True
        while self._waiting and not self.transport.is_closing() and self._may_begin(self._waiting[0][0]):
            route, what = self._waiting.popleft()
            if isinstance(what, Exchange):
                self._answers.append(what)
                if route is None:
                    what.settled(None)  # a refusal, already rendered
                else:
                    route.handle(route, what)
            else:
                self._run(what)
        self._advancing = False
        if self.transport.is_closing() or self._waiting:
            return
        if not self.flow.write_paused:
            self.flow.resume_reading()
        if self._finishing and not self._busy and self._stream is None:
            self.transport.close()

    def send_answers(self) -> None:
        """Writes every answer that is known and whose predecessors are written."""
        answers = self._answers
        while answers and answers[0].done:
            exchange = answers.popleft()
            if self.transport.is_closing():
                continue
            if exchange.plain:
                self.transport.write(exchange.response)
                continue
            self.transport.write(exchange.rendered())
            if exchange.close:
                self._linger() if exchange.refusal else self.transport.close()
        if self._waiting or self._finishing:
            self._advance()

    def open_stream(self, exchange: Exchange, topic: str, group: str, owner: str, lease_ms: int, prefetch: int) -> None:
        """Give the connection to a stream."""
        stream = Stream(self, chunked=not exchange.close or self.parser.get_http_version() != "1.0")
        stream.consumer = self.front.engine.attach(topic, group, owner, lease_ms, stream, prefetch=prefetch)
        self._answers.remove(exchange)
        assert not self._answers, "a stream runs alone"
        self._stream = stream
        stream.begin(exchange.request_id)
        if self._waiting:
            self.transport.abort()  # as in data_received

    # Cold requests: uvicorn's own protocol takes them

    def _begin_cold(self) -> None:
        url, headers = self.url, self.headers
        super().on_message_begin()
        self.url = url
        for name, value in headers:
            super().on_header(name, value)
        self.cycle = None  # type: ignore[assignment]  # what waits for its turn, waits here and not in uvicorn's queue
        super().on_headers_complete()
        self._cold_begun = True

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        if self._waiting or not self._may_begin(None):
            self._wait((None, (cycle, app)))
        else:
            self._run((cycle, app))

    def _run(self, request: tuple[RequestResponseCycle, Any]) -> None:
        self._running = request[0]
        super()._start_asgi_task(*request)

    def on_response_complete(self) -> None:
        """In place of uvicorn's: its queue is not used, and the sweep looks after idle connections."""
        self.server_state.total_requests += 1
        self._running = None
        self._advance()

    # Refusals

    def _refuse_headers(self) -> None:
        limits = self.front.limits
        message = f"headers are limited to {limits.headers} and {limits.header_bytes} bytes in all"
        self._refuse(431, "HEADERS_TOO_LARGE", message)

    def _refuse_body(self) -> None:
        self._refuse(413, "PAYLOAD_TOO_LARGE", f"a request body is limited to {self._body_bytes_max} bytes")

    def _refuse_method(self, request: tuple[str, bytes] | None, error: httptools.HttpParserError) -> None:
        """Answers a request whose method the parser does not know."""
        if request is None:
            self._refuse(400, "INVALID_ARGUMENT", f"this is not HTTP: {error}")
            return
        method, path = request
        allowed = self.front.allowed(path)
        if not allowed:
            self._refuse(404, "NOT_FOUND", not_found(path.decode("latin-1")))
            return
        allow = ", ".join(allowed)
        message = f"{method[:40]} is not known here; use {allow} on this path"
        self._refuse(405, "METHOD_NOT_ALLOWED", message, b"Allow: %b\r\n" % allow.encode())

    def _refuse(self, status: int, code: str, message: str, headers: bytes = b"") -> None:
        """Answers, in its turn, a request that cannot be read to its end; the connection ends with that."""
        if self._deaf or self.transport.is_closing():
            return
        self._deaf = True
        self._in_message = False
        self.front.refused[status] = self.front.refused.get(status, 0) + 1
        if self._cold_begun and not self._take_back():
            return
        exchange = Exchange(self, b"", b"", b"", self._head.request_id, True)
        exchange.refusal = True
        exchange.response = render_error(status, code, message, headers)
        self._waiting.append((None, exchange))
        self._advance()

    def _take_back(self) -> bool:
        """The application has the first half of this request already; False if it has answered it, too."""
        cycle = self.cycle
        if cycle is not self._running and not cycle.response_complete:
            self._waiting.pop()
            return True
        if cycle.response_complete:
            self._linger()
        elif cycle.response_started:
            self.transport.abort()
        else:
            self._running = None
            cycle.disconnected = True
            cycle.message_event.set()
            return True
        return False

    def _linger(self) -> None:
        """Closing while the client still sends would reset the connection and lose the answer on its way."""
        if self.transport.can_write_eof() and not self._finishing:
            self._lingering_sweeps = 0
            self.transport.write_eof()
        else:
            self.transport.close()

    # Flow control

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stalled_sweeps = self._unsent = 0
        if self._stream is None:
            self.flow.pause_reading()  # who does not read answers gets to ask no more questions
        elif self._stream.consumer is not None:
            self._stream.consumer.open = False

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stream is None:
            self._advance()
        elif self._stream.consumer is not None:
            self.front.engine.reopen(self._stream.consumer)

    # Time and shutdown

    def sweep(self) -> None:
        """Once a second: closes what has gone quiet, sends too slowly or does not read."""
        limits, sweeps = self.front.limits, self.front.sweeps
        self._quiet_sweeps += 1
        if self.flow.write_paused:
            unsent = self.transport.get_write_buffer_size()
            # Slow is not stalled: megabytes may take longer than the time-out, as long as they move.
            self._stalled_sweeps = 0 if unsent < self._unsent else self._stalled_sweeps + 1
            self._unsent = unsent
            if self._stalled_sweeps > sweeps(limits.stall_timeout_ms):
                self._drop_stalled()
        elif self._stream is not None:
            pass
        elif self._lingering_sweeps is not None:
            self._lingering_sweeps += 1
            if self._quiet_sweeps > LINGER_QUIET_SWEEPS or self._lingering_sweeps > sweeps(limits.receive_timeout_ms):
                self.transport.abort()
        elif self._in_message:
            self._receiving_sweeps += not self.flow.read_paused
            if self._receiving_sweeps > sweeps(limits.receive_timeout_ms):
                self._refuse(408, "REQUEST_TIMEOUT", f"the request took longer than {limits.receive_timeout_ms} ms")
        elif not self._busy and self._quiet_sweeps > sweeps(limits.idle_timeout_ms):
            self.transport.close()

    def _leave_group(self) -> None:
        if self._stream is not None and self._stream.consumer is not None:
            consumer, self._stream.consumer = self._stream.consumer, None
            self.front.engine.detach(consumer)

    def _drop_stalled(self) -> None:
        if self._stream is not None and self._stream.consumer is not None:
            log.warning("dropping a stream of owner %s that does not read", self._stream.consumer.owner)
        else:
            log.warning("dropping a connection that does not read its answers")
        self.transport.abort()

    def shutdown(self) -> None:
        """Answers what is under way, then closes."""
        self._finishing = True
        if self._stream is not None:
            # At once: what is under way elsewhere may still be stored, and must not go on lease to nobody.
            self._leave_group()
            self._stream.end()
        elif not self._busy:
            self.transport.close()
        else:
            self._deaf = not self._cold_begun  # whose body is still on its way
            self._say_goodbye()
            for exchange in list(self._answers):
                if exchange.pending is not None:
                    exchange.pending.answer_now()

    def _say_goodbye(self) -> None:
        """The last answer says that the connection ends with it."""
        if self._waiting:
            _, last = self._waiting[-1]
        elif self._running is not None:
            self._running.keep_alive = False
            return
        else:
            last = self._answers[-1]
        if isinstance(last, Exchange):
            last.end_connection()
        else:
            last[0].keep_alive = False
