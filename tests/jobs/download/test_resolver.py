"""Names: one lookup, checked, and nothing else is connected to."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from slipstream.jobs.download.addresses import Addresses
from slipstream.jobs.download.resolver import CheckedResolver
from slipstream.jobs.failure import Code, TaskFailed
from tests.client.loop import in_loop
from tests.jobs.download.workshop import name_server, workshop
from tests.jobs.hostile_server import body


async def resolved(names: dict[str, list[str]], host: str, allow: str = "") -> list[str]:
    resolver = CheckedResolver(Addresses(allow), name_server(names))
    try:
        return [result["host"] for result in await resolver.resolve(host, 80)]
    finally:
        await resolver.close()


@in_loop
async def test_forbidden_addresses_are_dropped_among_others() -> None:
    names = {"mixed.example": ["10.0.0.1", "8.8.8.8", "::1", "2606:4700::1", "8.8.8.8"]}
    assert await resolved(names, "mixed.example") == ["8.8.8.8", "2606:4700::1"]


@pytest.mark.parametrize("addresses", [["127.0.0.1"], ["::ffff:10.0.0.1", "169.254.169.254"], ["fe80::1%2"], []])
def test_a_name_that_leads_inside_only_is_refused(addresses: list[str]) -> None:
    with pytest.raises(TaskFailed) as caught:
        asyncio.run(resolved({"inside.example": addresses}, "inside.example"))
    assert caught.value.code is Code.DOWNLOAD_FORBIDDEN_ADDRESS
    assert not caught.value.is_retryable


@in_loop
async def test_a_name_nobody_knows_may_be_known_later() -> None:
    with pytest.raises(TaskFailed) as caught:
        await resolved({}, "nobody.example")
    assert caught.value.code is Code.DOWNLOAD_DNS
    assert caught.value.is_retryable


@in_loop
async def test_those_who_want_a_name_at_once_share_a_lookup_and_who_is_cancelled_does_not_take_it() -> None:
    go, asked = threading.Event(), []

    def slow(host: str, *_: object, **__: object) -> list[Any]:
        asked.append(host)
        go.wait()
        return name_server({"h": ["8.8.8.8"]})(host, None)

    resolver = CheckedResolver(Addresses(), slow)
    tasks = [asyncio.create_task(resolver.resolve("h", port)) for port in (80, 443, 8080)]
    await asyncio.sleep(0)
    tasks[0].cancel()
    await asyncio.gather(tasks[0], return_exceptions=True)
    go.set()
    answers = await asyncio.gather(*tasks[1:])
    assert [answer[0]["port"] for answer in answers] == [443, 8080]
    assert asked == ["h"]
    assert (await resolver.resolve("h", 81))[0]["host"] == "8.8.8.8"
    assert asked == ["h"], "it is kept for a while"
    await resolver.close()


@in_loop
async def test_the_connection_goes_to_the_address_that_was_checked_and_there_is_no_second_lookup() -> None:
    async with workshop(names={"files.example": ["127.0.0.1"]}) as shop:
        await shop.fetch("/ok/10", host="files.example")
        assert shop.content() == body(10)
        assert shop.server.requests[0].headers["host"] == f"files.example:{shop.server.port}"


@in_loop
async def test_localhost_is_refused_by_whatever_name() -> None:
    async with workshop(allow_networks="") as shop:
        for host in ("localhost", "localhost.", "LOCALHOST"):
            failure = await shop.failure("/ok/10", host=host)
            # With a dot at its end some systems do not know it, which is as good.
            assert failure.code in (Code.DOWNLOAD_FORBIDDEN_ADDRESS, Code.DOWNLOAD_DNS)
        assert not shop.server.connections
