"""What tests of downloads start from: settings that allow loopback, and a fetcher with a hostile server."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest

from slipstream.jobs.download.addresses import Addresses
from slipstream.jobs.download.fetch import Fetched, Fetcher
from slipstream.jobs.download.resolver import CheckedResolver
from slipstream.jobs.download.spool import Spool
from slipstream.jobs.failure import Code, TaskFailed
from slipstream.jobs.settings import JobSettings
from tests.jobs.hostile_server import HostileServer, hostile_server

LOOPBACK = "127.0.0.0/8, ::1/128"


def job_settings(**given: Any) -> JobSettings:
    return JobSettings(**{"allow_networks": LOOPBACK, **given})


class Workshop:
    """A fetcher, a server, and a spool of one task."""

    def __init__(self, server: HostileServer, fetcher: Fetcher, spool: Spool) -> None:
        self.server = server
        self.fetcher = fetcher
        self.spool = spool

    async def fetch(
        self, path: str, headers: Iterable[tuple[str, str]] = (), *, host: str = "127.0.0.1", proxy: str | None = None
    ) -> Fetched:
        """A path of the server, or a whole URL."""
        url = self.server.url(path, host) if path.startswith("/") else path
        return await self.fetcher.fetch(url, headers, self.spool, proxy=proxy)

    async def failure(self, path: str, headers: Iterable[tuple[str, str]] = (), **given: Any) -> TaskFailed:
        with pytest.raises(TaskFailed) as caught:
            await self.fetch(path, headers, **given)
        return caught.value

    def content(self) -> bytes:
        content = self.spool.content()
        return content if isinstance(content, bytes) else content.read()


@contextlib.asynccontextmanager
async def workshop(names: dict[str, list[str]] | None = None, **given: Any) -> AsyncIterator[Workshop]:
    settings = job_settings(**given)
    resolver = CheckedResolver(Addresses(settings.allow_networks), name_server(names)) if names is not None else None
    async with hostile_server() as server, Fetcher(settings, resolver=resolver) as fetcher:
        with Spool(settings) as spool:
            yield Workshop(server, fetcher, spool)


class NameServer:
    """In the place of getaddrinfo: answers from a table, and counts."""

    def __init__(self, names: dict[str, list[str]]) -> None:
        self.names = names
        self.asked: list[str] = []

    def __call__(self, host: str, port: object, **_: object) -> list[Any]:
        self.asked.append(host)
        if host not in self.names:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [_info(address) for address in self.names[host]]


def name_server(names: dict[str, list[str]]) -> NameServer:
    return NameServer(names)


def _info(address: str) -> tuple[Any, ...]:
    if ":" not in address:
        return (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0))
    plain, _, zone = address.partition("%")
    return (socket.AF_INET6, socket.SOCK_STREAM, 6, "", (plain, 0, 0, int(zone or 0)))


__all__ = ["LOOPBACK", "Code", "NameServer", "Workshop", "job_settings", "name_server", "workshop"]
