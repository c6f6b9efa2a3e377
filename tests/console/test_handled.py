"""How many dead letters of the bus were handled, as the overview counts them on a broker of our own."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

import pytest
from prometheus_client import CollectorRegistry

from slipstream.bus import Bus, dead_letters, open_bus
from slipstream.cli.console_in_broker import EngineStats
from slipstream.console import handled
from slipstream.console.broker import BrokerStats
from slipstream.console.handled import HandledCounts
from slipstream.console.sources import StatsSource
from tests.bus.conftest import topic
from tests.bus.sites import shared_site
from tests.client.loop import in_loop
from tests.run_services import RunServices

__all__ = ["topic"]


@contextlib.asynccontextmanager
async def looking(driver: str, services: RunServices) -> AsyncIterator[tuple[Bus, StatsSource]]:
    settings = {"driver": "memory"} if driver == "memory" else shared_site("http", services).settings()
    async with open_bus(registry=CollectorRegistry(), **settings) as bus:
        source: StatsSource = EngineStats(bus.native) if driver == "memory" else BrokerStats(settings["url"])
        try:
            yield bus, source
        finally:
            await source.close()


@pytest.mark.parametrize("driver", ["memory", "http"])
@in_loop
async def test_a_dead_letter_counts_until_it_is_handled(driver: str, services: RunServices, topic: str) -> None:
    dead = f"{topic}.DLQ"
    async with (
        looking(driver, services) as (bus, source),
        contextlib.aclosing(source.samples(1 if driver == "memory" else 100)) as samples,
    ):
        counts = HandledCounts(source)

        async def counted() -> int | None:
            return (await counts.count(await anext(samples))).get(dead)

        for body in (b"one", b"two", b"three"):
            await bus.publish(dead, body)
        assert await counted() is None
        letters = [letter async for letter in bus.dead_letters.list(topic)]
        await bus.dead_letters.redrive(letters[0])
        assert await counted() == 1
        await bus.dead_letters.discard(letters[1])
        await bus.publish(f"{dead}.handled", b"no record")
        assert await counted() == 2
        sample = await anext(samples)
        assert await HandledCounts(source).count(sample) == await counts.count(sample), "nothing is counted twice"
        handled_ms = time.time_ns() // 1_000_000
        while time.time_ns() // 1_000_000 == handled_ms:
            await asyncio.sleep(0.001)
        await bus.native.delete_topic(dead)
        await bus.publish(dead, b"another")
        assert await counted() == 0, "it lies where one lay that was handled"


def test_the_name_of_the_records_is_that_of_the_bus() -> None:
    assert handled.HANDLED_SUFFIX == dead_letters.HANDLED_SUFFIX
