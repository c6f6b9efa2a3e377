"""Reading the log of the broker in this process, and opening it."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from prometheus_client import CollectorRegistry

from slipstream.bus import Bus, Stored, TopicMissing, open_bus
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


@in_loop
async def test_a_follower_begins_at_the_oldest_there_is_and_loses_only_what_retention_removes() -> None:
    async with open_bus(driver="memory", registry=CollectorRegistry()) as bus:
        await publish(bus, 3_000)
        await trim(bus, below=100)
        offsets: list[int] = []
        async with contextlib.aclosing(bus.follow("orders", start=7)) as batches:
            async for batch in batches:
                assert 1 <= len(batch) <= 1_000
                if not offsets:
                    assert batch[0].offset == 100
                    await trim(bus, below=2_000)
                offsets += [stored.offset for stored in batch]
                if offsets[-1] == 2_999:
                    break
    assert len(offsets) == len(set(offsets)), "nothing comes twice"
    assert set(range(2_000, 3_000)) <= set(offsets), "and what is kept comes"


@in_loop
async def test_a_follower_is_told_when_its_topic_is_deleted() -> None:
    async with open_bus(driver="memory", registry=CollectorRegistry()) as bus:
        await bus.ensure_topic("orders")
        waiting = asyncio.ensure_future(anext(bus.follow("orders")))
        await asyncio.sleep(0.05)
        await bus.native.delete_topic("orders")
        with pytest.raises(TopicMissing, match="deleted"):
            await waiting


@in_loop
async def test_who_has_left_is_not_called_any_more() -> None:
    async with open_bus(driver="memory", registry=CollectorRegistry()) as bus:
        await publish(bus, 1)
        async with contextlib.aclosing(bus.follow("orders")) as batches:
            await anext(batches)
            assert bus.native._watchers
        assert not bus.native._watchers


async def publish(bus: Bus, count: int) -> None:
    """Several times as much as is read at once."""
    for _ in range(count):
        await bus.send("orders", b"x" * 2_000)
    await bus.flush()


async def trim(bus: Bus, below: int) -> None:
    """As retention does it."""
    (partition,) = bus.native.broker.topic("orders").partitions
    await bus.native.perform(lambda broker, now_ms: broker.trim(now_ms, partition, below, 0, first_offset=below))
