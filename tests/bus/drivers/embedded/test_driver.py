"""Reading the log of the broker in this process, and opening it."""

from __future__ import annotations

import asyncio

from prometheus_client import CollectorRegistry

from slipstream.bus import Bus, Stored, open_bus
from tests.client.loop import in_loop


@in_loop
async def test_what_retention_removes_under_a_reader_is_left_out_and_the_rest_comes_once() -> None:
    async with open_bus(driver="memory", registry=CollectorRegistry()) as bus:
        await publish(bus, 3_000)
        offsets: list[int] = []
        async for stored in bus.read("orders"):
            offsets.append(stored.offset)
            if len(offsets) == 10:
                await trim(bus, below=2_000)
    assert len(offsets) == len(set(offsets)), "nothing comes twice"
    assert set(range(2_000, 3_000)) <= set(offsets), "and what is kept comes"


@in_loop
async def test_a_reader_ends_when_retention_has_removed_all_it_was_to_see() -> None:
    async with open_bus(driver="memory", registry=CollectorRegistry()) as bus:
        await publish(bus, 3_000)
        reader = bus.read("orders", end=1_500)
        first = await anext(reader)
        await trim(bus, below=2_000)
        rest = [stored.offset async for stored in reader]
    assert first.offset == 0
    assert len(rest) == len(set(rest))


@in_loop
async def test_a_tap_that_is_slower_than_retention_sees_the_rest_once() -> None:
    async with open_bus(driver="memory", registry=CollectorRegistry()) as bus:
        await publish(bus, 1)
        listening = asyncio.Event()
        passing = bus.tap("*", listening=listening)
        first = asyncio.ensure_future(anext(passing))
        await listening.wait()
        await publish(bus, 3_000)
        seen: list[Stored] = [await first]
        await trim(bus, below=2_000)
        while seen[-1].offset < 3_000:
            seen.append(await anext(passing))
        await passing.aclose()
    offsets = [stored.offset for stored in seen]
    assert len(offsets) == len(set(offsets))
    assert set(range(2_000, 3_001)) <= set(offsets)


async def publish(bus: Bus, count: int) -> None:
    """Several times as much as is read at once."""
    for _ in range(count):
        await bus.send("orders", b"x" * 2_000)
    await bus.flush()


async def trim(bus: Bus, below: int) -> None:
    """As retention does it."""
    (partition,) = bus.native.broker.topic("orders").partitions
    await bus.native.perform(lambda broker, now_ms: broker.trim(now_ms, partition, below, 0, first_offset=below))
