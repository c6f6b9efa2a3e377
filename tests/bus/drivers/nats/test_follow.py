"""Following a stream while the server forgets who follows it."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from prometheus_client import CollectorRegistry

from slipstream.bus import Bus, TopicMissing
from slipstream.bus.drivers.nats.names import stream_name
from slipstream.bus.opening import Opening, open_bus
from tests.bus.sites.nats import NatsSite
from tests.client.loop import in_loop


def bus_on(site: NatsSite) -> Opening:
    return open_bus(registry=CollectorRegistry(), **site.settings())


async def consumers(bus: Bus, topic: str) -> list[str]:
    return [info.name for info in await bus.native.consumers_info(stream_name(topic))]


@in_loop
async def test_it_goes_on_with_another_consumer_when_its_own_is_deleted(nats: NatsSite, topic: str) -> None:
    async with bus_on(nats) as bus:
        await bus.publish(topic, b"0")
        async with contextlib.aclosing(bus.follow(topic)) as batches:
            assert [one.data for one in await anext(batches)] == [b"0"]
            for number in range(1, 4):
                (consumer,) = await consumers(bus, topic)
                await bus.native.delete_consumer(stream_name(topic), consumer)
                await bus.publish(topic, str(number))
                assert [one.data for one in await anext(batches)] == [str(number).encode()]
            assert len(await consumers(bus, topic)) == 1
        assert await consumers(bus, topic) == [], "it is given back"


@in_loop
async def test_what_is_lost_on_the_way_is_fetched_again(nats: NatsSite, topic: str) -> None:
    """The consumer has handed it out, and does not do so again."""
    async with bus_on(nats) as bus, bus_on(nats) as thief:
        await bus.publish(topic, b"0")
        async with contextlib.aclosing(bus.follow(topic)) as batches:
            await anext(batches)
            (consumer,) = await consumers(bus, topic)
            waiting = asyncio.ensure_future(anext(batches))
            stolen = await thief.native.pull_subscribe_bind(consumer=consumer, stream=stream_name(topic))
            taking = asyncio.ensure_future(stolen.fetch(2, timeout=30))
            await asyncio.wait({waiting, taking}, timeout=0.1)
            sent = [str(number).encode() for number in range(1, 11)]
            for data in sent:
                await bus.publish(topic, data)
            seen = [one.data for one in await waiting]
            while len(seen) < len(sent):
                seen += [one.data for one in await anext(batches)]
            assert await taking
    assert seen == sent


@in_loop
async def test_one_whose_topic_is_deleted_is_told(nats: NatsSite, topic: str) -> None:
    async with bus_on(nats) as bus:
        await bus.publish(topic, b"x")
        following = bus.follow(topic)
        await anext(following)
        await bus.native.delete_stream(stream_name(topic))
        with pytest.raises(TopicMissing):
            await anext(following)


@in_loop
async def test_a_stream_that_was_made_again_is_not_taken_for_the_old_one(nats: NatsSite, topic: str) -> None:
    async with bus_on(nats) as bus:
        await bus.publish(topic, b"x")
        following = bus.follow(topic)
        await anext(following)
        await bus.native.delete_stream(stream_name(topic))
        await bus.publish(topic, b"another")
        with pytest.raises(TopicMissing, match="made again"):
            await anext(following)


@in_loop
async def test_a_start_that_retention_has_removed_is_the_oldest_there_is(nats: NatsSite, topic: str) -> None:
    async with bus_on(nats) as bus:
        for number in range(10):
            await bus.publish(topic, str(number))
        await bus.native.purge_stream(stream_name(topic), seq=6)
        async with contextlib.aclosing(bus.follow(topic, start=2)) as batches:
            assert [one.offset for one in await anext(batches)] == [6, 7, 8, 9, 10]
