"""Resolves names once, and hands on only addresses that may be reached: what was checked is what is connected to.

A second lookup between check and connection could be answered differently (DNS rebinding). There is none: aiohttp gets
addresses from here, and connects to exactly these.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec
from aiohttp.abc import AbstractResolver, ResolveResult

from slipstream.jobs.download.addresses import Addresses
from slipstream.jobs.download.target import forbidden
from slipstream.jobs.failure import Code, TaskFailed
from slipstream.threads import DaemonThreads

THREADS = 8
"""Of their own: a name server that does not answer must not take those that write files."""
KEPT_S = 10.0
KEPT_MAX = 4096

Lookup: TypeAlias = Callable[..., list[Any]]


class Found(msgspec.Struct, frozen=True):
    """What a lookup came to: addresses that may be reached, or else why there are none."""

    addresses: tuple[tuple[socket.AddressFamily, str], ...] = ()
    refusals: tuple[str, ...] = ()
    error: str = ""
    until: float = 0.0


class CheckedResolver(AbstractResolver):
    """For aiohttp. Raises TaskFailed: DOWNLOAD_DNS, or DOWNLOAD_FORBIDDEN_ADDRESS where no address is left.

    Forbidden ones among others are dropped, rather than the whole name refused: a host may well have an inside address
    that only its owner can use. What is left was checked all the same.
    """

    def __init__(self, addresses: Addresses, lookup: Lookup = socket.getaddrinfo) -> None:
        self._addresses = addresses
        self._lookup = lookup
        self._threads = DaemonThreads(THREADS, "slipstream-dns")
        self._kept: dict[str, Found] = {}
        self._asking: dict[str, asyncio.Task[Found]] = {}

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        found = await self._find(host)
        if found.error:
            raise TaskFailed(Code.DOWNLOAD_DNS, f"the name {host} cannot be resolved: {found.error}", is_retryable=True)
        addresses = [(kind, address) for kind, address in found.addresses if family in (socket.AF_UNSPEC, kind)]
        if not addresses:
            raise forbidden(f"{host} leads to nothing that may be reached: {', '.join(found.refusals) or 'no address'}")
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=kind,
                proto=socket.IPPROTO_TCP,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for kind, address in addresses
        ]

    async def close(self) -> None:
        for task in self._asking.values():
            task.cancel()
        await asyncio.gather(*self._asking.values(), return_exceptions=True)
        self._threads.close()

    async def _find(self, host: str) -> Found:
        found = self._kept.get(host)
        if found is not None and asyncio.get_running_loop().time() < found.until:
            return found
        # One lookup for all who want the same name now. Who is cancelled does not take it from the others.
        task = self._asking.get(host)
        if task is None:
            task = self._asking[host] = asyncio.create_task(self._ask(host))
        return await asyncio.shield(task)

    async def _ask(self, host: str) -> Found:
        try:
            infos = await self._threads.call(self._lookup, host, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            return Found(error=str(error))  # not kept: the next attempt asks again
        finally:
            del self._asking[host]
        found = self._checked(infos)
        self._keep(host, found)
        return found

    def _checked(self, infos: list[Any]) -> Found:
        addresses: dict[tuple[socket.AddressFamily, str], None] = {}
        refusals: dict[str, None] = {}
        for family, _, _, _, place in infos:
            if family not in (socket.AF_INET, socket.AF_INET6):
                continue
            text = _with_zone(family, place)
            if refusal := self._addresses.refusal(text):
                refusals[refusal] = None
            else:
                addresses[family, str(ipaddress.ip_address(text))] = None
        until = asyncio.get_running_loop().time() + KEPT_S
        return Found(addresses=tuple(addresses), refusals=tuple(refusals), until=until)

    def _keep(self, host: str, found: Found) -> None:
        self._kept.pop(host, None)
        while len(self._kept) >= KEPT_MAX:
            del self._kept[next(iter(self._kept))]  # the oldest
        self._kept[host] = found


def _with_zone(family: socket.AddressFamily, place: tuple[Any, ...]) -> str:
    address = str(place[0])
    if family == socket.AF_INET6 and len(place) == 4 and place[3] and "%" not in address:
        return f"{address}%{place[3]}"
    return address
