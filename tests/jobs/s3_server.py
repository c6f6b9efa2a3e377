"""S3 on this machine: moto's server on a free port, with a bucket in it, and one that says no to everything."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any

import boto3  # type: ignore[import-untyped]
from moto.server import ThreadedMotoServer

SECRET = "do-not-tell-anybody"
BUCKET = "box"


class S3Server:
    def __init__(self) -> None:
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self._server.start()
        self.url = f"http://127.0.0.1:{self._server.get_host_and_port()[1]}"
        self.client: Any = boto3.client(
            "s3",
            endpoint_url=self.url,
            aws_access_key_id="AKIA",
            aws_secret_access_key=SECRET,
            region_name="us-east-1",
        )
        self.client.create_bucket(Bucket=BUCKET)

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "AKIA",
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
        }

    @property
    def options(self) -> dict[str, str | bool | int]:
        return {"endpoint": self.url, "access_key_id": "AKIA", "secret_access_key": SECRET, "region": "us-east-1"}

    def keys(self) -> list[str]:
        found = self.client.list_objects_v2(Bucket=BUCKET)
        return [each["Key"] for each in found.get("Contents", [])]

    def stop(self) -> None:
        self.client.close()
        self._server.stop()


@contextlib.contextmanager
def s3_server() -> Iterator[S3Server]:
    server = S3Server()
    try:
        yield server
    finally:
        server.stop()


DENIED = (
    b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>'
)


@contextlib.asynccontextmanager
async def denying_server() -> AsyncIterator[str]:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            head = f"HTTP/1.1 403 Forbidden\r\nContent-Length: {len(DENIED)}\r\nConnection: close\r\n\r\n"
            writer.write(head.encode() + DENIED)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await server.wait_closed()
