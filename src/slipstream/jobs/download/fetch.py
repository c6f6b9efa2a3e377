"""One attempt at a download: asks, follows redirects, checks every address on the way, and fills the spool."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType, TracebackType
from typing import Literal

import aiohttp
import msgspec
from multidict import CIMultiDict
from yarl import URL

from slipstream.jobs.download import answer
from slipstream.jobs.download.addresses import Addresses
from slipstream.jobs.download.encoding import Decoder, decoder_for
from slipstream.jobs.download.hosts import Hosts
from slipstream.jobs.download.lanes import NO_LANE, Lane
from slipstream.jobs.download.limits import HostLimit, HostLimits, Share
from slipstream.jobs.download.mishap import failure_of, shown_proxy
from slipstream.jobs.download.pace import Pace
from slipstream.jobs.download.question import DEFAULTS, question_headers, without_credentials
from slipstream.jobs.download.resolver import CheckedResolver
from slipstream.jobs.download.spool import Spool
from slipstream.jobs.download.target import (
    check_literal,
    follow,
    is_address,
    is_same_origin,
    parse_target,
    shown,
    without_userinfo,
)
from slipstream.jobs.download.watch import Watch, Watched
from slipstream.jobs.failure import Code, TaskFailed
from slipstream.jobs.settings import JobSettings

REDIRECTS = frozenset({301, 302, 303, 307, 308})
WORTH_ANOTHER_TRY = frozenset({408, 425, 429, 499})
"""Besides every 5xx."""
READ_BYTES = 256 * 1024
DECODE_BYTES = 16 * 1024


class Fetched(msgspec.Struct, frozen=True):
    """What is now in the spool, and where it came from."""

    status: int
    url: str
    """Where the redirects, if any, have led. Without userinfo."""
    mime: str
    """The type alone, in small letters; "" where the server has not said, or nonsense."""
    etag: str
    last_modified: str
    encoding: str
    """What Content-Encoding was undone; "" for none."""
    size_sent: int
    """Bytes of the body that came in this attempt, as they were sent."""
    redirects: int
    is_resumed: bool


class Redirect(msgspec.Struct, frozen=True):
    to: URL


StartAnew = Literal["start anew"]
START_ANEW: StartAnew = "start anew"
"""The part that was sent does not fit what we have: ask again, for the whole."""


class Fetcher:
    """Downloads, any number at a time, over connections that are kept.

    Example:
        async with Fetcher(settings) as fetcher:
            fetched = await fetcher.fetch("https://…", [("Accept", "image/png")], spool)

    `hosts` says who may go where: `fetcher.hosts.delay_s(host)` is how long a host does not want to be asked.
    """

    def __init__(
        self,
        settings: JobSettings,
        *,
        hosts: Mapping[str, HostLimit] = MappingProxyType({}),
        waiting_max: int | None = None,
        hold_s_max: float | None = None,
        tls: ssl.SSLContext | None = None,
        resolver: CheckedResolver | None = None,
    ) -> None:
        """`hosts`: limits by name or pattern. `waiting_max`: downloads that may wait for a turn; `hold_s_max`: how long
        they wait for a host that asked for it. With None for both, `fetch` never raises Crowded. A TLS context of one's
        own is for a network with an authority of its own. Raises InvalidJobs."""
        self._limits = HostLimits(hosts, Share(settings.host_concurrency, settings.host_rate_per_s))
        self._waiting_max = waiting_max
        self._hold_s_max = hold_s_max
        self._settings = settings
        self._addresses = Addresses(settings.allow_networks)
        self._tls: ssl.SSLContext | bool = tls if tls is not None else True
        self._given_resolver = resolver
        self._connect_s = settings.connect_timeout_ms / 1000
        self._read_s = settings.read_timeout_ms / 1000
        self._total_s = settings.total_timeout_ms / 1000

    async def __aenter__(self) -> Fetcher:
        settings = self._settings
        self._watch = Watch(min(self._read_s, self._total_s))
        self.hosts = Hosts(
            limits=self._limits,
            places=settings.concurrency,
            waiting_max=self._waiting_max,
            hold_s_max=self._hold_s_max,
        )
        self._resolver = self._given_resolver or CheckedResolver(self._addresses)
        # Turns limit connections. aiohttp need not; and its cache of names need not be: the resolver has one.
        self._direct = self._session(aiohttp.TCPConnector(resolver=self._resolver, limit=0, use_dns_cache=False))
        # A proxy is the operator's own, and likely inside: its name may lead anywhere. Only proxies are resolved here.
        self._proxied = self._session(aiohttp.TCPConnector(limit=0))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._direct.close()
        await self._proxied.close()
        await self._resolver.close()
        self.hosts.close()
        self._watch.close()

    def _session(self, connector: aiohttp.TCPConnector) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=DEFAULTS,
            auto_decompress=False,
            trust_env=False,
            read_bufsize=READ_BYTES,
            timeout=aiohttp.ClientTimeout(total=None, connect=self._connect_s),  # the rest is watched here
        )

    # An attempt

    async def fetch(
        self,
        url: str,
        headers: Iterable[tuple[str, str]],
        spool: Spool,
        *,
        proxy: str | None = None,
        lane: Lane = NO_LANE,
        is_begun: bool = False,
        on_turn: Callable[[], None] = lambda: None,
        decode: bool = True,
    ) -> Fetched:
        """Fill the spool, from where a former attempt has left it if the server allows, and compute its digest.

        `is_begun`: the task has had a turn before. `on_turn` is called for each request, when it has its turn at its
        host. Without `decode` the bytes are kept as they were sent, whatever their Content-Encoding. Raises TaskFailed,
        and Crowded where there is no room to wait for a turn; the spool is then ready for the next attempt.
        """
        target = parse_target(url)
        fields = question_headers(headers, target)
        attempt = _Attempt(without_userinfo(target), fields, URL(proxy) if proxy else None, decode=decode)
        left_s = self._total_s
        while True:
            check_literal(attempt.target, self._addresses)
            await self.hosts.enter(host_of(attempt.target), lane, is_begun=is_begun)
            outcome, took_s = await self._in_turn(attempt, spool, left_s, on_turn)
            if isinstance(outcome, Fetched):
                return outcome
            left_s -= took_s
            if isinstance(outcome, Redirect):
                attempt.follow(outcome.to, self._settings.max_redirects)
            else:
                await spool.start_anew()

    async def _in_turn(
        self, attempt: _Attempt, spool: Spool, left_s: float, on_turn: Callable[[], None]
    ) -> tuple[Fetched | Redirect | StartAnew, float]:
        """Return the outcome of a request and the seconds it took, and give the turn back."""
        host = host_of(attempt.target)
        try:
            on_turn()
            began_at = time.monotonic()
            return await self._ask(attempt, spool, began_at + left_s), time.monotonic() - began_at
        finally:
            self.hosts.leave(host)

    async def _ask(self, attempt: _Attempt, spool: Spool, ends_at: float) -> Fetched | Redirect | StartAnew:
        """One request."""
        attempt.ends_at = ends_at
        # The head as a whole, not each piece of it: so one that drips is given up, too.
        head_by = min(ends_at, time.monotonic() + self._connect_s + self._read_s)
        try:
            with self._watch.over(head_by) as attempt.watched:
                response = await self._send(attempt, spool)
                try:
                    return await self._receive(response, attempt, spool)
                finally:
                    response.release()  # keeps the connection if the body was read to its end, and closes it otherwise
        except (aiohttp.ClientError, ConnectionError, ValueError) as error:
            raise failure_of(error, attempt.target, attempt.proxy) from error
        except TimeoutError as error:
            raise self._too_slow(attempt) from error

    def _too_slow(self, attempt: _Attempt) -> TaskFailed:
        if time.monotonic() >= attempt.ends_at:
            why = f"it takes more than {self._total_s:g} s (JOBS_TOTAL_TIMEOUT_MS)"
        else:
            why = f"nothing came for {self._read_s:g} s (JOBS_READ_TIMEOUT_MS)"
        return TaskFailed(Code.DOWNLOAD_TIMEOUT, f"{shown(attempt.target)}: {why}", is_retryable=True)

    async def _send(self, attempt: _Attempt, spool: Spool) -> aiohttp.ClientResponse:
        fields = attempt.fields
        attempt.range_from = spool.size if spool.validator else 0
        if attempt.range_from:
            fields = fields.copy()
            fields["Range"] = f"bytes={spool.size}-"
            fields["If-Range"] = spool.validator
            if attempt.decode:
                fields["Accept-Encoding"] = "identity"  # a range of something compressed would be of other bytes
        if attempt.proxy is None:
            return await self._direct.get(attempt.target, headers=fields, allow_redirects=False, ssl=self._tls)
        await self._check_name(attempt.target)
        return await self._proxied.get(
            attempt.target, headers=fields, allow_redirects=False, ssl=self._tls, proxy=attempt.proxy
        )

    async def _check_name(self, target: URL) -> None:
        """Where the proxy would go, as far as we can tell. It resolves the name again, by itself: a name that is
        answered differently there than here gets through, and so does one of a network that only the proxy sees. A
        proxy that can reach what strangers must not has to refuse it by itself."""
        if not is_address(target):
            await self._resolver.resolve(target.raw_host or "", target.port or 0)

    # An answer

    async def _receive(
        self, response: aiohttp.ClientResponse, attempt: _Attempt, spool: Spool
    ) -> Fetched | Redirect | StartAnew:
        status = response.status
        if status < 500 and status != 429:
            self.hosts.relent(host_of(attempt.target))
        if status in REDIRECTS and "Location" in response.headers:
            return Redirect(follow(attempt.target, response.headers["Location"]))
        if attempt.range_from and (status == 416 or (status == 206 and not _fits(response, spool, attempt))):
            return START_ANEW
        if not 200 <= status < 300 or (status == 206 and not attempt.range_from):
            raise self._refused(response, attempt)
        if status != 206 and not spool.is_new:
            await spool.start_anew()
        return await self._fill(response, attempt, spool)

    def _refused(self, response: aiohttp.ClientResponse, attempt: _Attempt) -> TaskFailed:
        status, where = response.status, shown(attempt.target)
        if status == 407:
            message = f"{where}: the proxy {shown_proxy(attempt.proxy)} answered 407"
            return TaskFailed(Code.DOWNLOAD_PROXY, message, is_retryable=attempt.proxy is not None)
        wait_s = answer.retry_after_s(response.headers)
        is_throttled = status == 429 or (status == 503 and wait_s is not None)
        if is_throttled:
            longest_s = self._settings.retry_after_max_ms / 1000
            self.hosts.throttle(host_of(attempt.target), None if wait_s is None else min(wait_s, longest_s))
        return TaskFailed(
            Code.DOWNLOAD_HTTP_STATUS,
            f"{where}: the server answered {status}{_remark(status)}",
            is_retryable=status >= 500 or status in WORTH_ANOTHER_TRY,
            retry_after_s=wait_s,
            is_throttled=is_throttled,
        )

    async def _fill(self, response: aiohttp.ClientResponse, attempt: _Attempt, spool: Spool) -> Fetched:
        settings, headers = self._settings, response.headers
        encoding = headers.get("Content-Encoding", "")
        decoder = None
        if encoding and attempt.decode:
            decoder = decoder_for(encoding, max_bytes=settings.max_bytes, max_ratio=settings.max_ratio)
        length = response.content_length
        if length is not None and spool.size + length > settings.max_bytes:
            raise _too_large(attempt.target, f"it would have {spool.size + length} bytes", settings.max_bytes)
        if response.status == 206:
            spool.is_resumed = True
        elif decoder is None:
            spool.total = length
        try:
            size_sent = await self._read(response.content, decoder, attempt, spool)
        except BaseException:  # the end of the worker, too: whoever holds the spool may go on with it
            if decoder is None and response.status != 206:
                spool.validator = answer.validator(headers)
            raise
        if decoder is None and spool.total is not None and spool.size != spool.total:
            raise TaskFailed(
                Code.DOWNLOAD_RESET,
                f"{shown(attempt.target)}: {spool.size} of {spool.total} bytes have come",
                is_retryable=True,
            )
        await spool.finish()
        return Fetched(
            status=response.status,
            url=str(attempt.target),
            mime=answer.mime(headers),
            etag=answer.plain(headers.get("ETag", "")),
            last_modified=answer.plain(headers.get("Last-Modified", "")),
            encoding=encoding if decoder is not None else "",
            size_sent=size_sent,
            redirects=attempt.redirects,
            is_resumed=spool.is_resumed,
        )

    async def _read(
        self, content: aiohttp.StreamReader, decoder: Decoder | None, attempt: _Attempt, spool: Spool
    ) -> int:
        settings, watched, now = self._settings, attempt.watched, time.monotonic
        pace: Pace | None = None
        size = 0
        while not content.at_eof():
            asked_at = now()
            watched.expires_at = min(attempt.ends_at, asked_at + self._read_s)
            piece = await content.readany()
            if not piece:
                break
            if size:  # most downloads are one piece, and have no pace
                pace = pace or Pace(settings.slowest_bytes_per_s, settings.slowest_ms)
                pace.arrived(len(piece), now() - asked_at)
            watched.expires_at = attempt.ends_at  # writing is not waiting for the server
            size += len(piece)
            if decoder is not None:
                await _decode(piece, decoder, spool)
            elif spool.size + len(piece) > settings.max_bytes:
                raise _too_large(attempt.target, "more than that has come", settings.max_bytes)
            else:
                await spool.write(piece)
        if decoder is not None:
            decoder.finish()
        return size


class _Attempt:
    """Where it is now, and with which header fields."""

    __slots__ = ("decode", "ends_at", "fields", "proxy", "range_from", "redirects", "target", "watched")

    watched: Watched

    def __init__(self, target: URL, fields: CIMultiDict[str], proxy: URL | None, *, decode: bool) -> None:
        self.target = target
        self.decode = decode
        self.fields = fields
        self.proxy = proxy
        self.ends_at = 0.0
        self.redirects = 0
        self.range_from = 0
        """The first byte that the last request asked for."""

    def follow(self, to: URL, max_redirects: int) -> None:
        self.redirects += 1
        if self.redirects > max_redirects:
            raise TaskFailed(
                Code.DOWNLOAD_TOO_MANY_REDIRECTS,
                f"{shown(self.target)}: more than {max_redirects} redirects (JOBS_MAX_REDIRECTS)",
            )
        if not is_same_origin(self.target, to):
            self.fields = without_credentials(self.fields)  # for good: a way back does not bring them back
        self.target = to


async def _decode(piece: bytes, decoder: Decoder, spool: Spool) -> None:
    """A slice at a time, and others have their turn between. A body may be made of thousands of empty gzip members,
    each of which takes time to open: those of a whole piece held up the loop for 54 to 81 ms, of a slice for 2."""
    for start in range(0, len(piece), DECODE_BYTES):
        if start:
            await asyncio.sleep(0)
        for decoded in decoder.decode(piece[start : start + DECODE_BYTES]):
            await spool.write(decoded)


def host_of(target: URL) -> str:
    """By what turns are given out. With a dot at its end it is the same host."""
    return (target.raw_host or "").rstrip(".")


def _fits(response: aiohttp.ClientResponse, spool: Spool, attempt: _Attempt) -> bool:
    """That a part begins where the spool ends, and is of the same bytes as far as anybody has said."""
    part = answer.content_range(response.headers)
    if part is None or part.start != spool.size:
        return False
    if attempt.decode and response.headers.get("Content-Encoding", "identity").strip().lower() not in ("", "identity"):
        return False
    if part.total is not None and spool.total is not None and part.total != spool.total:
        return False
    spool.total = part.total if part.total is not None else spool.total
    etag = response.headers.get("ETag")
    return etag is None or not spool.validator.startswith('"') or etag == spool.validator


def _remark(status: int) -> str:
    if status in REDIRECTS:
        return " without a Location"
    if status == 206:
        return " with a part that nobody asked for"
    return ""


def _too_large(target: URL, what: str, max_bytes: int) -> TaskFailed:
    return TaskFailed(
        Code.DOWNLOAD_TOO_LARGE, f"{shown(target)}: {what}; at most {max_bytes} are taken (JOBS_MAX_BYTES)"
    )
