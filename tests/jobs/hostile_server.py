"""An HTTP server that misbehaves in every way a worker has to survive, in the loop of the test, on a free port.

    async with hostile_server() as server:
        await fetcher.fetch(server.url("/reset/1000?size=5000"), [], spool)
    assert server.requests[-1].headers["range"] == "bytes=1000-"

Routes, each of which takes any path after what is shown, so that tests can tell their resources apart:

- `/ok/<n>`                   n bytes that are always the same: `body(n)`; with ranges, ETag and Last-Modified
- `/chunked/<n>`              the same in chunks, and no length announced
- `/status/<code>`            that status
- `/flaky/<failures>/<name>`  so many 500, then as /ok/100
- `/reset/<n>?size=<m>`       RST after n bytes of m, whatever was asked for; a range goes on, n bytes at a time
- `/reset-whole/<n>?size=<m>` the same once, then well; it does not know ranges, though it has an ETag
- `/truncated/<n>?size=<m>`   closes orderly after n bytes of m, and does not know ranges
- `/redirect?to=<url>&status=<code>`, `/no-location`, `/loop`
- `/drip`                     a byte every few milliseconds, for ever
- `/drip-head`                the same, of a header
- `/hang`                     never answers; `/hang-body` never goes on after the first bytes
- `/retry-after/<s>/<name>`   429 with Retry-After the first time, then ok; `?status=`, and `?times=`
- `/quota/<n>/<name>`         n answers in `server.quota_s`, as /ok/100; then 429 with Retry-After 1
- `/gzip/<n>`, `/deflate/<n>`, `/raw-deflate/<n>`, `/gzip-truncated/<n>`, `/bomb`, `/encoding/<name>`
- `/huge`                     announces 10 TB, and sends a little
- `/endless`                  sends for ever, in chunks
- `/wrong-range/<n>?size=<m>` as /reset, but answers a range with another; `/changed/…` with another ETag
- `/unasked-range`            206 to whatever is asked
- `/bad-chunks`, `/not-http`, `/many-headers`
- `/headers`                  the headers it was sent, as JSON
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gzip
import hashlib
import json
import socket
import ssl
import struct
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from urllib.parse import parse_qsl, urlsplit

import msgspec

LAST_MODIFIED = "Mon, 01 Jan 2024 00:00:00 GMT"
DATE = "Tue, 02 Jan 2024 00:00:00 GMT"
TEN_TB = 10 * 10**12


@functools.lru_cache(64)
def body(size: int) -> bytes:
    """The bytes of /ok/<size>: not all the same, so that a part in the wrong place is noticed."""
    blocks = (hashlib.sha256(number.to_bytes(8, "big")).digest() for number in range(size // 32 + 1))
    return b"".join(blocks)[:size]


@functools.lru_cache
def _bomb() -> bytes:
    return gzip.compress(bytes(20 << 20))


class Request(msgspec.Struct):
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    """By name in small letters."""
    raw_headers: list[tuple[str, str]]
    raw_target: str = ""


class HostileServer:
    """Counts requests and remembers them. `paths` says how often a path was asked for."""

    def __init__(self) -> None:
        self.port = 0
        self.quota_s = 0.05
        self.window_ends_at = 0.0
        self.window_answers = 0
        self.requests: list[Request] = []
        self.paths: Counter[str] = Counter()
        self.connections = 0
        self.running = 0
        self.running_most = 0
        self.is_tls = False
        self.arrived = asyncio.Event()
        """A request has come: for tests that wait for one to be under way."""
        self.release = asyncio.Event()
        """Ends /hang and /hold, well."""
        self.gate = asyncio.Event()
        """While it is not set, requests are remembered and not answered."""
        self.gate.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    def url(self, path: str, host: str = "127.0.0.1") -> str:
        return f"{'https' if self.is_tls else 'http'}://{host}:{self.port}{path}"

    async def start(self, tls: ssl.SSLContext | None = None) -> None:
        self.is_tls = tls is not None
        self._server = await asyncio.start_server(self._accept, "0.0.0.0", 0, ssl=tls, backlog=1024)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
                while request := await read_request(reader):
                    self._remember(request)
                    await self.gate.wait()
                    self.running += 1
                    self.running_most = max(self.running_most, self.running)
                    try:
                        goes_on = await Answer(self, request, writer).give()
                    finally:
                        self.running -= 1
                    if not goes_on:
                        break
        except asyncio.CancelledError:
            pass  # the end of the test; asyncio's streams would complain about it
        finally:
            self._tasks.discard(task)
            writer.close()

    def _remember(self, request: Request) -> None:
        self.requests.append(request)
        self.paths[request.path] += 1
        self.arrived.set()


async def read_request(reader: asyncio.StreamReader) -> Request | None:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.rstrip("\r\n").split("\r\n")
    method, target, _ = first.split(" ")
    parts = urlsplit(target)
    fields = [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines)]
    headers = {name.lower(): value for name, value in fields}
    return Request(method, parts.path, dict(parse_qsl(parts.query)), headers, fields, target)


class Answer:
    """To one request. A method each; what it returns says whether the connection goes on."""

    def __init__(self, server: HostileServer, request: Request, writer: asyncio.StreamWriter) -> None:
        self.server = server
        self.request = request
        self.writer = writer
        self.words = request.path.strip("/").split("/")

    async def give(self) -> bool:
        name = self.words[0].replace("-", "_")
        act: Callable[[], Awaitable[bool]] | None = getattr(self, f"on_{name}", None)
        if act is None:
            return await self.send(404, b"no such route")
        return await act()

    # Honest ones

    async def on_ok(self) -> bool:
        return await self.send_part(body(self.number()))

    async def on_chunked(self) -> bool:
        await self.head(200, {"Transfer-Encoding": "chunked", "Content-Type": "application/octet-stream"})
        data = body(self.number())
        for start in range(0, len(data), 1000):
            piece = data[start : start + 1000]
            await self.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        await self.write(b"0\r\n\r\n")
        return True

    async def on_headers(self) -> bool:
        return await self.send(200, json.dumps(self.request.raw_headers).encode(), {"Content-Type": "application/json"})

    async def on_hold(self) -> bool:
        await self.server.release.wait()
        return await self.send(200, body(10))

    # Statuses

    async def on_status(self) -> bool:
        return await self.send(self.number(), b"" if self.number() in (204, 304) else b"as you wished")

    async def on_flaky(self) -> bool:
        if self.server.paths[self.request.path] <= self.number():
            return await self.send(500, b"not yet")
        return await self.send_part(body(100))

    async def on_retry_after(self) -> bool:
        if self.server.paths[self.request.path] > int(self.request.query.get("times", "1")):
            return await self.send_part(body(100))
        return await self.send(
            int(self.request.query.get("status", "429")), b"later", {"Retry-After": self.words[1].replace("_", " ")}
        )

    async def on_quota(self) -> bool:
        server, now = self.server, asyncio.get_running_loop().time()
        if now >= server.window_ends_at:
            server.window_ends_at, server.window_answers = now + server.quota_s, 0
        server.window_answers += 1
        if server.window_answers <= int(self.words[1]):
            return await self.send_part(body(100))
        return await self.send(429, b"later", {"Retry-After": "1"})

    async def on_redirect(self) -> bool:
        status = int(self.request.query.get("status", "302"))
        return await self.send(status, b"elsewhere", {"Location": self.request.query["to"]})

    async def on_no_location(self) -> bool:
        return await self.send(302, b"elsewhere")

    async def on_loop(self) -> bool:
        return await self.send(302, b"here", {"Location": "/loop"})

    # Bodies that break off

    async def on_reset(self) -> bool:
        data = body(self.size())
        start = self.range_start(data)
        if start + self.number() >= len(data):
            return await self.send_part(data)
        await self.part_head(data, start)
        await self.write(data[start : start + self.number()])
        return await self.reset()

    async def on_reset_whole(self) -> bool:
        data = body(self.size())
        await self.head(200, {"Content-Length": str(len(data)), "ETag": '"v1"'})
        if self.server.paths[self.request.path] > 1:
            await self.write(data)
            return True
        await self.write(data[: self.number()])
        return await self.reset()

    async def on_truncated(self) -> bool:
        await self.head(200, {"Content-Length": str(self.size())})
        await self.write(body(self.size())[: self.number()])
        return False

    async def on_wrong_range(self) -> bool:
        if "range" not in self.request.headers:
            return await (self.on_reset() if self.server.paths[self.request.path] == 1 else self.on_ok_size())
        data = body(self.size())
        return await self.send(206, data, {"Content-Range": f"bytes 0-{len(data) - 1}/{len(data)}", "ETag": '"v1"'})

    async def on_changed(self) -> bool:
        if "range" not in self.request.headers:
            return await (self.on_reset() if self.server.paths[self.request.path] == 1 else self.on_ok_size())
        data = body(self.size())
        start = self.range_start(data)
        field = f"bytes {start}-{len(data) - 1}/{len(data)}"
        return await self.send(206, data[start:], {"Content-Range": field, "ETag": '"v2"'})

    async def on_gone_range(self) -> bool:
        if "range" in self.request.headers:
            return await self.send(416, b"no such range")
        return await (self.on_reset() if self.server.paths[self.request.path] == 1 else self.on_ok_size())

    async def on_unasked_range(self) -> bool:
        return await self.send(206, body(10), {"Content-Range": "bytes 0-9/100"})

    async def on_ok_size(self) -> bool:
        return await self.send_part(body(self.size()))

    # Bodies that take their time

    async def on_drip(self) -> bool:
        await self.head(200, {"Content-Length": "1000000"})
        while True:
            await self.write(b".")
            await asyncio.sleep(0.01)

    async def on_drip_head(self) -> bool:
        await self.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
        while True:
            await self.write(b".")
            await asyncio.sleep(0.01)

    async def on_hang(self) -> bool:
        await self.server.release.wait()
        return False

    async def on_hang_body(self) -> bool:
        await self.head(200, {"Content-Length": "1000"})
        await self.write(b"so far")
        await self.server.release.wait()
        return False

    # Bodies that are too much

    async def on_huge(self) -> bool:
        await self.head(200, {"Content-Length": str(TEN_TB)})
        await self.write(body(1000))
        return False

    async def on_endless(self) -> bool:
        await self.head(200, {"Transfer-Encoding": "chunked"})
        piece = b"10000\r\n" + bytes(65536) + b"\r\n"
        while True:
            await self.write(piece)

    async def on_bomb(self) -> bool:
        return await self.send(200, _bomb(), {"Content-Encoding": "gzip"})

    # Encodings

    async def on_gzip(self) -> bool:
        return await self.send(200, gzip.compress(body(self.number())), {"Content-Encoding": "gzip", "ETag": '"z"'})

    async def on_deflate(self) -> bool:
        return await self.send(200, zlib.compress(body(self.number())), {"Content-Encoding": "deflate"})

    async def on_raw_deflate(self) -> bool:
        squeeze = zlib.compressobj(wbits=-15)
        data = squeeze.compress(body(self.number())) + squeeze.flush()
        return await self.send(200, data, {"Content-Encoding": "deflate"})

    async def on_gzip_truncated(self) -> bool:
        return await self.send(
            200, gzip.compress(body(self.number()))[:-9], {"Content-Encoding": "gzip", "ETag": '"z"'}
        )

    async def on_encoding(self) -> bool:
        return await self.send(200, body(10), {"Content-Encoding": self.words[1]})

    # What is no HTTP

    async def on_bad_chunks(self) -> bool:
        await self.head(200, {"Transfer-Encoding": "chunked"})
        await self.write(b"zz\r\nthis is no chunk\r\n")
        return False

    async def on_not_http(self) -> bool:
        await self.write(b"220 mail.example ESMTP\r\n\r\n")
        return False

    async def on_many_headers(self) -> bool:
        await self.head(200, {f"X-{number}": "x" * 4000 for number in range(200)})
        return False

    # How it is said

    def number(self) -> int:
        return int(self.words[1])

    def size(self) -> int:
        return int(self.request.query["size"])

    def range_start(self, data: bytes) -> int:
        """0 unless a range is asked for and If-Range still holds."""
        field = self.request.headers.get("range", "")
        if not field.startswith("bytes=") or self.request.headers.get("if-range", '"v1"') not in (
            '"v1"',
            LAST_MODIFIED,
        ):
            return 0
        return int(field.removeprefix("bytes=").rstrip("-"))

    async def send_part(self, data: bytes) -> bool:
        start = self.range_start(data)
        if start >= len(data) > 0:
            return await self.send(416, b"", {"Content-Range": f"bytes */{len(data)}"})
        await self.part_head(data, start)
        await self.write(data[start:])
        return True

    async def part_head(self, data: bytes, start: int) -> None:
        fields = {
            "Content-Length": str(len(data) - start),
            "Content-Type": "Application/Octet-Stream; charset=binary",
            "Accept-Ranges": "bytes",
            "ETag": '"v1"',
            "Last-Modified": LAST_MODIFIED,
        }
        if "last-modified-only" in self.request.query:
            del fields["ETag"]
        if start:
            fields["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
        await self.head(206 if start else 200, fields)

    async def send(self, status: int, data: bytes, fields: dict[str, str] | None = None) -> bool:
        await self.head(status, {"Content-Length": str(len(data)), **(fields or {})})
        await self.write(data)
        return True

    async def head(self, status: int, fields: dict[str, str]) -> None:
        lines = [f"HTTP/1.1 {status} So", f"Date: {DATE}", *(f"{name}: {value}" for name, value in fields.items())]
        await self.write("\r\n".join([*lines, "", ""]).encode("latin-1"))

    async def write(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def reset(self) -> bool:
        """RST rather than FIN, once the client has had time to read: what it has not read is thrown away by RST."""
        for _ in range(20):  # turns of the loop, which may be the client's as well: after a stall it needs some
            await asyncio.sleep(0.005)
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()
        return False


@contextlib.asynccontextmanager
async def hostile_server(tls: ssl.SSLContext | None = None) -> AsyncIterator[HostileServer]:
    server = HostileServer()
    await server.start(tls)
    try:
        yield server
    finally:
        await server.stop()
