"""Hands a request to another process and its answer back, piece by piece: streams stay streams, both ways."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from slipstream.api.media import EVENTS
from slipstream.console.answers import Refused, error_answer, refusal
from slipstream.durations import duration_text

if TYPE_CHECKING:
    import aiohttp

log = logging.getLogger(__name__)

HOP_BY_HOP = frozenset(
    {
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection"),
        *("te", "trailer", "transfer-encoding", "upgrade"),
    }
)
"""Between two neighbours, and nobody else's business."""

OF_A_BROWSER = frozenset({"authorization", "cookie"})
"""For whoever is in front of us, such as a proxy that asks for a password. No part of ours asks a browser for them."""

CONNECT_S = 5.0

STOPPING_S = 1.0
"""What was asked may have been done: when everything stops, its answer is still worth a moment."""

ERROR_BYTES_MAX = 1 << 20

Reword = Callable[[int, bytes], tuple[str, str] | None]
"""Makes a code and a message of what another says in words of its own; None where that is nothing it knows."""


class Forwarder:
    """An ASGI application that is somewhere else.

    Example:
        app = Forwarder("http://127.0.0.1:8070", what="the console", start="slipstream console")
    """

    def __init__(
        self,
        url: str,
        *,
        what: str,
        start: str,
        timeout_ms: int = 90_000,
        setting: str = "CONSOLE_ANSWER_TIMEOUT_MS",
        headers: Mapping[str, str] | None = None,
        reword: Reword | None = None,
    ) -> None:
        """An answer has to begin within `timeout_ms`, which is what `setting` says; then it may go on for ever."""
        self.url = (url if "://" in url else f"http://{url}").rstrip("/")
        self._what = what
        self._start = start
        self._timeout_ms = timeout_ms
        self._setting = setting
        self._own = {name.lower(): value for name, value in (headers or {}).items()}
        self._reword = reword
        self._session: aiohttp.ClientSession | None = None
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """What would go on for ever ends."""
        self._stopping.set()

    async def close(self) -> None:
        self.stop()
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.forward(scope, receive, send)

    async def forward(self, scope: Scope, receive: Receive, send: Send, path: bytes | None = None) -> None:
        """To the same path there, or to another. Path and query are as they came, percent signs and all."""
        assert scope["type"] == "http", "nothing else is routed here"
        import aiohttp  # noqa: PLC0415 - a broker that forwards nothing does without it
        from yarl import URL  # noqa: PLC0415

        target = self.url + (path or scope.get("raw_path") or scope["path"].encode()).decode("ascii")
        if query := scope.get("query_string", b""):
            target += "?" + query.decode("ascii")
        request = Request(scope)
        body = _Body(receive, is_there=_has_body(scope))
        exchange = _Exchange(send, self._reword, request)

        async def exchanged() -> None:
            async with self._client().request(
                scope["method"],
                URL(target, encoded=True),
                headers=self._headers_to(scope),
                data=body.pieces() if body.is_there else None,
                allow_redirects=False,
            ) as answer:
                await exchange.pass_on(answer)

        try:
            await self._until_gone(exchanged(), body, exchange)
        except Refused as refused:
            if not exchange.started:
                await refusal(request, refused)(scope, receive, send)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            if exchange.started:
                # Too late for words: that it is not complete shows in how it ends.
                log.warning("%s at %s broke off in the middle of an answer: %s", self._what, self.url, error)
                if not exchange.is_stream:
                    raise
                await send({"type": "http.response.body", "body": b""})  # whoever follows it begins anew by themselves
                return
            await self._say_away(scope, receive, send, error)

    def _client(self) -> aiohttp.ClientSession:
        import aiohttp  # noqa: PLC0415

        if self._session is None:
            self._session = aiohttp.ClientSession(
                # A stream may be silent for as long as nothing happens.
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
                connector=aiohttp.TCPConnector(limit=0),
                auto_decompress=False,
                skip_auto_headers=("accept", "accept-encoding", "user-agent", "content-type"),
                cookie_jar=aiohttp.DummyCookieJar(),
                max_line_size=64 << 10,
                max_field_size=64 << 10,
            )
        return self._session

    def _headers_to(self, scope: Scope) -> list[tuple[str, str]]:
        """Host as it came: who is asked must be able to tell whether a page asks that came from there."""
        given = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in scope["headers"]]
        kept = [pair for pair in _end_to_end(given) if pair[0] not in OF_A_BROWSER | self._own.keys()]
        if all(name != "x-request-id" for name, _ in kept) and scope.get("slipstream.request_id"):
            kept.append(("x-request-id", scope["slipstream.request_id"]))
        return [*kept, *self._own.items()]

    async def _until_gone(self, passing: Coroutine[Any, Any, None], body: _Body, exchange: _Exchange) -> None:
        """Until the answer is through, or whoever asked is gone: then nobody there need go on, either.

        Raises Refused where there is none to wait for.
        """
        work = asyncio.create_task(passing)
        ends = [
            asyncio.create_task(each) for each in (body.gone(), self._stopped(exchange), self._silent(body, exchange))
        ]
        try:
            await asyncio.wait([work, *ends], return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                await work
            for each in ends:
                if each.done():
                    await each
        finally:
            for each in (work, *ends):
                each.cancel()
            await asyncio.gather(work, *ends, return_exceptions=True)

    async def _stopped(self, exchange: _Exchange) -> None:
        await self._stopping.wait()
        if not exchange.started:
            await asyncio.sleep(STOPPING_S)
        raise Refused("UNAVAILABLE", f"this process stops, and {self._what} at {self.url} has not answered yet")

    async def _silent(self, body: _Body, exchange: _Exchange) -> None:
        """Ends where nothing moves, neither there nor back, before the answer has begun."""
        loop = asyncio.get_running_loop()
        while not exchange.started:
            left_s = body.moved_at + self._timeout_ms / 1000 - loop.time()
            if left_s <= 0:
                raise Refused(
                    "DEADLINE_EXCEEDED",
                    f"{self._what} at {self.url} is there, and has not begun to answer within "
                    f"{duration_text(self._timeout_ms)}: its log may say why ({self._setting})",
                )
            await asyncio.sleep(left_s)
        await loop.create_future()

    async def _say_away(self, scope: Scope, receive: Receive, send: Send, error: Exception) -> None:
        import aiohttp  # noqa: PLC0415

        request = Request(scope)
        number = error.errno if isinstance(error, aiohttp.ClientConnectorError) else None
        reason = os.strerror(number) if number else str(error) or type(error).__name__
        if isinstance(error, aiohttp.ClientConnectorError | TimeoutError):
            message = f"{self._what} does not answer at {self.url} ({reason}): start it with `{self._start}`"
            response = error_answer(request, 503, "UNAVAILABLE", message, retry_after_s=1)
        else:
            message = f"{self._what} at {self.url} broke off before it answered: {reason}"
            response = error_answer(request, 502, "BAD_GATEWAY", message)
        await response(scope, receive, send)


class _Body:
    """The body of a request, and then whether whoever sent it is still there."""

    def __init__(self, receive: Receive, *, is_there: bool) -> None:
        self._receive = receive
        self._read = asyncio.Event()
        self._gone = False
        self.is_there = is_there
        self.moved_at = asyncio.get_running_loop().time()

    async def pieces(self) -> AsyncIterator[bytes]:
        while True:
            message = await self._receive()
            self.moved_at = asyncio.get_running_loop().time()
            if message["type"] == "http.disconnect":
                self._gone = True
                self._read.set()
                raise ConnectionResetError("whoever asked is gone")
            if piece := message.get("body", b""):
                yield piece
            if not message.get("more_body", False):
                self._read.set()
                return

    async def gone(self) -> None:
        """Returns when whoever asked is."""
        if self.is_there:
            await self._read.wait()  # one reader at a time
        while not self._gone:
            self._gone = (await self._receive())["type"] == "http.disconnect"


class _Exchange:
    """The answer, on its way back."""

    def __init__(self, send: Send, reword: Reword | None, request: Request) -> None:
        self._send = send
        self._reword = reword
        self._request = request
        self.started = False
        self.is_stream = False
        """Of events, of which none is cut in two where it ends."""

    async def pass_on(self, answer: aiohttp.ClientResponse) -> None:
        self.is_stream = answer.content_type == EVENTS
        begun = b""
        if self._reword is not None and answer.status >= 400:
            begun = await _beginning(answer.content, ERROR_BYTES_MAX)
            if (words := self._reword(answer.status, begun)) is not None:
                response = error_answer(self._request, answer.status, *words)
                await self._start(answer.status, response.raw_headers)
                await self._send({"type": "http.response.body", "body": response.body})
                return
        await self._start(answer.status, _raw(answer))
        if begun:
            await self._send({"type": "http.response.body", "body": begun, "more_body": True})
        async for piece in answer.content.iter_any():
            await self._send({"type": "http.response.body", "body": piece, "more_body": True})
        await self._send({"type": "http.response.body", "body": b""})

    async def _start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self.started = True
        await self._send({"type": "http.response.start", "status": status, "headers": headers})


async def _beginning(content: aiohttp.StreamReader, size: int) -> bytes:
    """All of it, where it is no longer. It comes in pieces."""
    data = bytearray()
    while len(data) < size and (piece := await content.read(size - len(data))):
        data += piece
    return bytes(data)


def _raw(answer: aiohttp.ClientResponse) -> list[tuple[bytes, bytes]]:
    pairs = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in answer.raw_headers]
    return [
        (name.encode("latin-1"), value.encode("latin-1"))
        for name, value in _end_to_end(pairs)
        if name.lower() not in {"date", "server"}
    ]


def _end_to_end(pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Without what is between two neighbours, also where they say so themselves."""
    named = {name.strip().lower() for key, value in pairs if key.lower() == "connection" for name in value.split(",")}
    return [(name, value) for name, value in pairs if name.lower() not in HOP_BY_HOP | named]


def _has_body(scope: Scope) -> bool:
    return any(name in {b"content-length", b"transfer-encoding"} for name, _ in scope["headers"])
