"""A web server that misbehaves on purpose, as crawlers meet them, on an address of this machine for it alone."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

HOST = "127.83.0.1"
"""All of 127.0.0.0/8 is this machine on Linux. Workers that `slipstream up` starts may download from here, and from
nowhere else inside."""

REQUEST_S = 10.0
SLOW_PIECES = 8
SLOW_PAUSE_S = 0.2

FILES = 12
FILE_BYTES = 40_000


def write_files(folder: Path) -> list[Path]:
    """The folder that is served: the same every time."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number in range(1, FILES + 1):
        path = folder / f"page-{number:02}.txt"
        line = f"This is page {number} of a book that nobody has written.\n"
        path.write_text(line * (FILE_BYTES // len(line)))
        paths.append(path)
    return paths


def sha256(path: Path) -> str:
    return "sha256:" + hashlib.sha256(path.read_bytes()).hexdigest()


class Web:
    """`/fine/NAME` sends a file of the folder; `/slow/` in pieces with pauses; `/down/` answers 503 at first, `/busy/`
    with 503 and Retry-After, `/torn/` breaks off in the middle, each fine the second time; `/gone/` is 404."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._asked: Counter[str] = Counter()
        self.url = ""

    @contextlib.asynccontextmanager
    async def serving(self, host: str = HOST) -> AsyncIterator[Web]:
        """On any free port, until the end of the `async with`. Raises OSError."""
        server = await asyncio.start_server(self._answer, host, 0)
        self.url = f"http://{host}:{server.sockets[0].getsockname()[1]}"
        async with server:
            yield self

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_S):
                head = await reader.readuntil(b"\r\n\r\n")
                await self._send(writer, head.split(b" ", 2)[1].decode(errors="replace"))
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, IndexError):
            pass  # whoever asked is gone, or asks for what is no HTTP
        finally:
            writer.close()

    async def _send(self, writer: asyncio.StreamWriter, path: str) -> None:
        self._asked[path] += 1
        is_first = self._asked[path] == 1
        way, _, name = path.strip("/").partition("/")
        file = self._folder / Path(name).name  # whatever else the path says, it is a file of this folder
        if way == "gone" or not file.is_file():
            await _write(writer, 404, b"there is no such page\n")
        elif way == "down" and is_first:
            await _write(writer, 503, b"come back later\n")
        elif way == "busy" and is_first:
            await _write(writer, 503, b"come back in a second\n", {"Retry-After": "1"})
        elif way == "torn" and is_first:
            data = file.read_bytes()
            await _write(writer, 200, data[: len(data) // 2], length=len(data))
        else:
            await _write(writer, 200, file.read_bytes(), pieces=SLOW_PIECES if way == "slow" else 1)


async def _write(
    writer: asyncio.StreamWriter,
    status: int,
    data: bytes,
    headers: Mapping[str, str] | None = None,
    *,
    length: int | None = None,
    pieces: int = 1,
) -> None:
    lines = {
        "Content-Type": "text/plain",
        "Content-Length": str(len(data) if length is None else length),
        "Connection": "close",
        **(headers or {}),
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    writer.write(f"HTTP/1.1 {status} Demonstration\r\n{head}\r\n".encode())
    size = -(-len(data) // pieces)
    for start in range(0, len(data), size):
        if start:
            await asyncio.sleep(SLOW_PAUSE_S)  # what a slow server does
        writer.write(data[start : start + size])
        await writer.drain()
