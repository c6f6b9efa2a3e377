"""Following a topic: what is there, and then what comes, for as long as anybody wants it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator

import pytest

from slipstream.bus import Bus, BusError, InvalidArgument, Stored, TopicMissing, Unsupported
from tests.bus.conftest import OpenBus
from tests.bus.sites.site import Site
from tests.client.loop import in_loop


def skip_without_log(site: Site) -> None:
    if not site.reads:
        pytest.skip(f"{site.driver} keeps no log")


async def publish(bus: Bus, topic: str, first: int, end: int) -> None:
    for number in range(first, end):
        await bus.send(topic, str(number), key="user:1")
    await bus.flush()


async def take(batches: AsyncGenerator[list[Stored], None], count: int) -> list[Stored]:
    """Not more than that, either."""
    taken: list[Stored] = []
    while len(taken) < count:
        batch = await anext(batches)
        assert 1 <= len(batch) <= 1_000
        taken += batch
    assert len(taken) == count
    return taken


def numbers(stored: list[Stored]) -> list[int]:
    return [int(one.data) for one in stored]


@in_loop
async def test_what_is_there_comes_and_then_what_is_published(site: Site, new_bus: OpenBus, topic: str) -> None:
    async with new_bus(prefix="dev.") as bus:
        if not site.reads:
            with pytest.raises(Unsupported):
                await anext(bus.follow(topic))
            return
        await publish(bus, topic, 0, 2_500)
        async with contextlib.aclosing(bus.follow(topic)) as batches:
            before = await take(batches, 2_500)
            assert numbers(before) == list(range(2_500))
            assert before[0].topic == topic
            assert before[0].key == "user:1"
            assert before == [stored async for stored in bus.read(topic)]
            for number in range(2_500, 2_505):  # each when nothing else is there
                await bus.publish(topic, str(number))
                async with asyncio.timeout(10):
                    assert numbers(await take(batches, 1)) == [number]
            await publish(bus, topic, 2_505, 4_000)
            assert numbers(await take(batches, 4_000 - 2_505)) == list(range(2_505, 4_000))


@in_loop
async def test_one_who_waits_is_woken(site: Site, new_bus: OpenBus, topic: str) -> None:
    skip_without_log(site)
    async with new_bus() as bus:
        await bus.ensure_topic(topic)
        async with contextlib.aclosing(bus.follow(topic)) as batches:
            for number in range(2):
                next_batch = asyncio.ensure_future(anext(batches))
                await asyncio.wait({next_batch}, timeout=0.1)
                assert not next_batch.done()
                await bus.publish(topic, str(number))
                async with asyncio.timeout(10):
                    assert numbers(await next_batch) == [number]


@in_loop
async def test_it_begins_where_it_is_told_to(site: Site, new_bus: OpenBus, topic: str) -> None:
    skip_without_log(site)
    async with new_bus() as bus:
        await publish(bus, topic, 0, 10)
        offsets = [stored.offset async for stored in bus.read(topic)]
        async with contextlib.aclosing(bus.follow(topic, start=offsets[7])) as batches:
            assert numbers(await take(batches, 3)) == [7, 8, 9]
        async with contextlib.aclosing(bus.follow(topic, start=offsets[-1] + 3)) as batches:
            first = asyncio.ensure_future(anext(batches))
            await asyncio.wait({first}, timeout=0.2)
            await publish(bus, topic, 10, 14)
            assert numbers(await first) == [12, 13] or numbers([*first.result(), *await anext(batches)]) == [12, 13]


@in_loop
async def test_several_follow_without_taking_from_each_other(site: Site, new_bus: OpenBus, topic: str) -> None:
    skip_without_log(site)
    async with new_bus() as bus, new_bus() as other:
        await bus.ensure_topic(topic)
        followers = [bus.follow(topic), bus.follow(topic), other.follow(topic)]
        taking = [asyncio.create_task(take(follower, 1_500)) for follower in followers]
        await publish(bus, topic, 0, 1_500)
        for taken in await asyncio.gather(*taking):
            assert numbers(taken) == list(range(1_500))
        for follower in followers:
            await follower.aclose()


@in_loop
async def test_what_is_not_there_cannot_be_followed(site: Site, new_bus: OpenBus, topic: str) -> None:
    skip_without_log(site)
    async with new_bus() as bus:
        with pytest.raises(TopicMissing):
            await anext(bus.follow(topic))
        await bus.ensure_topic(topic)
        with pytest.raises(InvalidArgument):
            await anext(bus.follow(topic, partition=17))


@in_loop
async def test_each_partition_is_followed_by_itself(site: Site, new_bus: OpenBus, topic: str) -> None:
    skip_without_log(site)
    if not site.has_partitions:
        pytest.skip(f"{site.driver} has one partition")
    async with new_bus() as bus:
        await bus.ensure_topic(topic, partitions=3)
        ids = [await bus.publish(topic, str(number), key=f"user:{number}") for number in range(30)]
        for partition in range(3):
            here = [number for number, place in enumerate(ids) if place.startswith(f"{partition}/")]
            async with contextlib.aclosing(bus.follow(topic, partition)) as batches:
                assert numbers(await take(batches, len(here))) == here


@in_loop
async def test_who_is_left_leaves_nothing_behind(site: Site, new_bus: OpenBus, topic: str) -> None:
    skip_without_log(site)
    async with new_bus() as bus:
        await publish(bus, topic, 0, 10)
        before = len(asyncio.all_tasks())
        async with contextlib.aclosing(bus.follow(topic)) as batches:
            await take(batches, 10)
            waiting = asyncio.ensure_future(anext(batches))
            await asyncio.wait({waiting}, timeout=0.1)
            waiting.cancel()
            await asyncio.wait({waiting})
        assert len(asyncio.all_tasks()) <= before + 1  # nats-py has one that ends when it is next looked at
        async with contextlib.aclosing(bus.follow(topic)) as batches:
            await anext(batches)


@in_loop
async def test_a_follower_is_told_when_its_bus_is_closed(site: Site, new_bus: OpenBus, topic: str) -> None:
    skip_without_log(site)
    bus = await new_bus()
    await bus.ensure_topic(topic)
    waiting = asyncio.ensure_future(anext(bus.follow(topic)))
    await asyncio.wait({waiting}, timeout=0.2)
    await bus.close()
    async with asyncio.timeout(15):
        with pytest.raises(BusError):
            await waiting
