"""Requests and answers over HTTP: MessagePack both ways, time limits, and another attempt where that is safe."""

from __future__ import annotations

import asyncio
import contextlib
import email.utils
import logging
import os
import re
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import urlencode

import aiohttp
import msgspec
from yarl import URL

from slipstream import __version__
from slipstream.api import JSON, MSGPACK, ErrorResponse
from slipstream.client.errors import ConnectionFailed, InProgress, InvalidArgument, SlipstreamError, refusal
from slipstream.client.retry import Repeat, Retries, asked_ms, give_up_ms, may_repeat

log = logging.getLogger(__name__)

T = TypeVar("T")

CONNECT_MS = 3_000
"""For the connection alone. Shorter than any request: who was not connected by then has surely sent nothing."""

ANSWER_BYTES_MAX = 256 << 20
"""Four times what a server gives in one answer unless it is told otherwise. More is no answer of ours."""

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding raises: for what is no such data, for text that is none, and for what is nested without end."""

_encode = msgspec.msgpack.Encoder().encode
_sleep = asyncio.sleep


OTHER_ADDRESS = "set SLIPSTREAM_URL, or --server, to the address of the broker"


class Answer(msgspec.Struct, frozen=True):
    status: int
    headers: Mapping[str, str]
    body: bytes


class Transport:
    """One server, and the connections to it. They belong to the event loop of the first request."""

    def __init__(self, url: str, timeout_ms: int, retries: Retries, connections: int) -> None:
        self.url = url.rstrip("/")
        self.shown = re.sub("(^|//)[^/@]*@", r"\1", self.url)
        """For errors, which end up in logs: without the name and password it may carry."""
        if not url.startswith(("http://", "https://")):
            raise self._no_address(
                "it begins with http:// or https://" + ("" if "://" in url else f"; did you mean http://{self.shown}?")
            )
        try:
            parsed = URL(url, encoded=True)
            parsed.port  # noqa: B018 - looked at, or it is not checked
        except ValueError as error:
            raise self._no_address(error) from error
        if parsed.raw_query_string or parsed.raw_fragment:
            raise self._no_address("paths are put behind it, so it ends before any ? or #")
        self.timeout_ms = timeout_ms
        self.retries = retries
        self.connections = connections
        self.closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._session: aiohttp.ClientSession | None = None
        self._patient: aiohttp.ClientSession | None = None

    async def call(
        self,
        method: str,
        path: str,
        answer: type[T],
        repeat: Repeat,
        *,
        body: object = None,
        query: msgspec.Struct | None = None,
        wait_ms: int = 0,
        retries: Retries | None = None,
    ) -> T:
        """Asks until there is an answer, as far as `repeat` allows, and decodes it."""
        given = await self.ask(method, path, repeat, body=body, query=query, wait_ms=wait_ms, retries=retries)
        return self._decoded(given, answer, f"{method} {path}")

    async def ask(
        self,
        method: str,
        path: str,
        repeat: Repeat,
        *,
        body: object = None,
        query: msgspec.Struct | None = None,
        wait_ms: int = 0,
        accept: str = MSGPACK,
        retries: Retries | None = None,
    ) -> Answer:
        """`wait_ms`: how long the server was asked to wait before it answers; the time limit begins after it."""
        retries = retries or self.retries
        target = self._target(path, query)
        data = None if body is None else _encoded(body)
        began = time.monotonic()
        met: float | None = None
        failures = 0
        while True:
            try:
                return await self._attempt(method, target, data, accept, wait_ms)
            except SlipstreamError as error:
                failures += 1
                pause_s = retries.pause_ms(failures, asked_ms(error)) / 1000
                now = time.monotonic()
                since = began
                if isinstance(error, InProgress):
                    # Counted from when the copy was first met: an attempt that got no answer may have taken long.
                    since = met = met or now
                ended = now + pause_s > since + give_up_ms(error, retries) / 1000
                if ended or not may_repeat(error, repeat):
                    if failures > 1:
                        error.add_note(f"{method} {path}: given up after {failures} attempts")
                    raise
                log.debug("%s %s: %s; once more in %.0f ms", method, path, error, pause_s * 1000)
            await _sleep(pause_s)

    async def _attempt(self, method: str, target: URL, data: bytes | None, accept: str, wait_ms: int) -> Answer:
        headers = {"Accept": accept}
        if data is not None:
            headers["Content-Type"] = MSGPACK
        limit = self._limit(wait_ms)
        with self._failures(target, changes=method != "GET"):
            async with self._sessions(patient=wait_ms > 0).request(
                method, target, data=data, headers=headers, timeout=limit, allow_redirects=False
            ) as response:
                answer = Answer(response.status, response.headers, await _body(response, target))
        if answer.status >= HTTPStatus.MULTIPLE_CHOICES:
            raise _refusal(answer, target)
        return answer

    @contextlib.asynccontextmanager
    async def stream(
        self, path: str, accept: str, query: msgspec.Struct, silence_ms: int
    ) -> AsyncIterator[aiohttp.StreamReader]:
        """An answer without end; it has broken off when nothing came for `silence_ms`."""
        target = self._target(path, query)
        limit = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_MS / 1000, sock_read=silence_ms / 1000)
        with self._failures(target, changes=False):
            async with self._sessions(patient=True).get(
                target, headers={"Accept": accept}, timeout=limit, allow_redirects=False
            ) as response:
                if response.status != HTTPStatus.OK:
                    raise _refusal(Answer(response.status, response.headers, await _body(response, target)), target)
                yield response.content

    async def close(self) -> None:
        self.closed = True
        for session in (self._session, self._patient):
            if session is not None:
                await session.close()

    def _sessions(self, *, patient: bool) -> aiohttp.ClientSession:
        """Requests that wait on purpose have connections of their own, without a limit: those that wait for messages
        must not keep those that finish them from being sent."""
        if self.closed:
            raise SlipstreamError("this client is closed: make a new one")
        loop = asyncio.get_running_loop()
        self._loop = self._loop or loop
        if self._loop is not loop:
            raise SlipstreamError("this client belongs to another event loop: make one for each")
        if patient:
            self._patient = self._patient or _session(0)
            return self._patient
        self._session = self._session or _session(self.connections)
        return self._session

    def _target(self, path: str, query: msgspec.Struct | None) -> URL:
        parameters = {} if query is None else msgspec.to_builtins(query)
        text = urlencode({name: _parameter(value) for name, value in parameters.items() if value is not None})
        return URL(f"{self.url}{path}?{text}" if text else self.url + path, encoded=True)

    def _limit(self, wait_ms: int) -> aiohttp.ClientTimeout:
        connect_ms = min(CONNECT_MS, self.timeout_ms // 2)
        return aiohttp.ClientTimeout(total=(self.timeout_ms + wait_ms) / 1000, sock_connect=connect_ms / 1000)

    @contextlib.contextmanager
    def _failures(self, target: URL, *, changes: bool) -> Iterator[None]:
        """Raise an error of this client for one of aiohttp. `changes`: the request is more than a read."""
        where = f"{self.shown} for {target.path}"
        unknown = "; whether it was done is not known" if changes else ""
        try:
            yield
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise ConnectionFailed(
                f"cannot reach {where}: {_reason(error)}; is the server running there?", sent=False
            ) from error
        except (aiohttp.InvalidURL, UnicodeError) as error:  # a name that cannot be one is found when it is looked up
            raise self._no_address(error) from error
        except TimeoutError as error:
            raise ConnectionFailed(f"no answer from {where} in time{unknown}") from error
        except (aiohttp.ClientError, OSError) as error:
            reason = str(error) or type(error).__name__
            raise ConnectionFailed(f"the connection to {where} broke before the answer: {reason}{unknown}") from error

    def _no_address(self, reason: object) -> InvalidArgument:
        return InvalidArgument(f"{self.shown!r} is no address of a server: {reason}")

    @staticmethod
    def _decoded(answer: Answer, kind: type[T], what: str) -> T:
        try:
            return _decoder(kind).decode(answer.body)
        except UNREADABLE as error:
            raise nonsense(what, error) from error


def _reason(error: Exception) -> str:
    """In the system's words, where they are known: aiohttp's own tell what it was about to do."""
    number = getattr(getattr(error, "os_error", None), "errno", None)
    return os.strerror(number) if number is not None and number > 0 else str(error)


def nonsense(what: str, error: Exception) -> SlipstreamError:
    return SlipstreamError(
        f"the answer to {what} makes no sense: {error}; if it is not a Slipstream broker that answers, {OTHER_ADDRESS}",
        status=HTTPStatus.OK,
    )


async def _body(response: aiohttp.ClientResponse, target: URL) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in response.content.iter_any():
        size += len(part)
        if size > ANSWER_BYTES_MAX:
            raise SlipstreamError(
                f"the answer from {target.path} is larger than {ANSWER_BYTES_MAX} bytes: ask for less, if this is a "
                "Slipstream server",
                status=response.status,
            )
        parts.append(part)
    return b"".join(parts)


def _session(connections: int) -> aiohttp.ClientSession:
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=connections),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"User-Agent": f"slipstream-python/{__version__}"},
    )
    # aiohttp sends every GET and DELETE again by itself if the connection breaks. What may be repeated is decided here;
    # there is no other switch for it, and aiohttp's own tests turn this one.
    session._retry_connection = False
    return session


def _encoded(body: object) -> bytes:
    try:
        return _encode(body)
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError) as error:
        raise InvalidArgument(f"{type(body).__name__} cannot be sent: {error}") from error


_decoders: dict[object, msgspec.msgpack.Decoder[Any]] = {}


def _decoder(kind: type[T]) -> msgspec.msgpack.Decoder[T]:
    found = _decoders.get(kind)
    if found is None:
        found = _decoders[kind] = msgspec.msgpack.Decoder(kind)
    return found


def _parameter(value: object) -> str:
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)


def _refusal(answer: Answer, target: URL) -> SlipstreamError:
    refused = _error_response(answer)
    # In milliseconds if the server is ours, in seconds or as a date if somebody before it answers.
    retry_after_ms = max(0, refused.retry_after_ms) or _retry_after_ms(answer.headers.get("Retry-After", ""))
    if not refused.message:
        text = f"{target.path} was answered with {answer.status} and no reason"
        if answer.status < HTTPStatus.INTERNAL_SERVER_ERROR:
            where = target.origin()
            text = f"something that is not a Slipstream broker answers at {where}: {text}; {OTHER_ADDRESS}"
        refused = msgspec.structs.replace(refused, message=text)
    return refusal(answer.status, refused, retry_after_ms)


def _error_response(answer: Answer) -> ErrorResponse:
    kind = answer.headers.get("Content-Type", "").partition(";")[0]
    try:
        if kind == MSGPACK:
            return _decoder(ErrorResponse).decode(answer.body)
        if kind == JSON:
            return msgspec.json.decode(answer.body, type=ErrorResponse)
    except UNREADABLE:
        pass
    return ErrorResponse("", "")  # a proxy's page, in its own words


def _retry_after_ms(header: str) -> int:
    """RFC 9110: seconds, or a date."""
    try:
        if header.isdecimal():
            return int(header[:18]) * 1000
        when_s = email.utils.parsedate_to_datetime(header).timestamp()
    except (ValueError, OverflowError):
        return 0
    return max(0, round((when_s - time.time()) * 1000))
