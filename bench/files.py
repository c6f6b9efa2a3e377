"""A server of small files: the same few kilobytes, whatever is asked for."""

from __future__ import annotations

import asyncio
import sys
from typing import cast

import httptools
import uvloop

SIZE = 4096
BODY = bytes(range(256)) * (SIZE // 256)
RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\nContent-Length: %d\r\n\r\n%b" % (SIZE, BODY)


class Files(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.parser = httptools.HttpRequestParser(self)

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_message_complete(self) -> None:
        self.transport.write(RESPONSE)


async def main() -> None:
    server = await asyncio.get_running_loop().create_server(Files, "127.0.0.1", 0)
    print(f"listening on http://127.0.0.1:{server.sockets[0].getsockname()[1]}", file=sys.stderr, flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())
