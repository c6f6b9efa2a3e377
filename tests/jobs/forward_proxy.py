"""A real, small forward proxy: GET of whole URLs, and CONNECT. It goes where its table says, whatever the name."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

from tests.jobs.hostile_server import Request, read_request


class ForwardProxy:
    def __init__(self, refuse: int = 0) -> None:
        self.port = 0
        self.requests: list[Request] = []
        self._refuse = refuse
        """Answers everything with this status, if given."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def url_with(self, userinfo: str) -> str:
        return f"http://{userinfo}@127.0.0.1:{self.port}"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
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
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                request = await read_request(reader)
                assert request is not None
                self.requests.append(request)
                await self._serve(request, reader, writer)
        except asyncio.CancelledError:
            pass  # the end of the test
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _serve(self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refuse:
            writer.write(f"HTTP/1.1 {self._refuse} No\r\nContent-Length: 0\r\n\r\n".encode())
            await writer.drain()
            return
        if request.method == "CONNECT":
            port = int(request.raw_target.rpartition(":")[2])
            there, back = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")
        else:
            parts = urlsplit(request.raw_target)
            there, back = await asyncio.open_connection("127.0.0.1", parts.port or 80)
            path = parts.path + (f"?{parts.query}" if parts.query else "")
            lines = [f"{request.method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in request.raw_headers)]
            back.write("\r\n".join([*lines, "", ""]).encode())
        asking = asyncio.create_task(_copy(reader, back))
        try:
            await _copy(there, writer)  # the end of the answer is the end of it, however it came
        finally:
            asking.cancel()
            back.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()


@contextlib.asynccontextmanager
async def forward_proxy(refuse: int = 0) -> AsyncIterator[ForwardProxy]:
    proxy = ForwardProxy(refuse)
    await proxy.start()
    try:
        yield proxy
    finally:
        await proxy.stop()
