"""Topics and groups before there are messages: what there is, what is made, what is changed."""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta

import pytest

from slipstream.bus import NO_OFFSET, InvalidArgument, TopicInfo, TopicMissing
from tests.bus.conftest import OpenBus
from tests.bus.recorder import Recorder
from tests.bus.sites.site import Site
from tests.client.loop import in_loop

HOUR_MS = 3_600_000


@in_loop
async def test_a_topic_that_is_not_there_is_none(new_bus: OpenBus, topic: str) -> None:
    async with new_bus() as bus:
        assert await bus.topic(topic) is None
        with pytest.raises(TopicMissing, match=re.escape(topic)):
            await bus.adjust_topic(topic, retention=3600)
        assert await bus.topic(topic) is None, "to look at it, or to change it, does not make it"


@in_loop
async def test_a_topic_tells_what_it_was_made_with(site: Site, new_bus: OpenBus, topic: str) -> None:
    async with new_bus(prefix="dev.") as bus:
        await bus.ensure_topic(topic, partitions=3, retention=timedelta(hours=1), retention_bytes=1 << 20)
        info = await bus.topic(topic)
        await bus.ensure_topic(topic, partitions=9, retention=7, retention_bytes=7)
        assert await bus.topic(topic) == info, "one that exists is left as it is"
    size = (1 << 20) if site.limits_bytes else None
    assert info == TopicInfo(topic, 3 if site.has_partitions else 1, HOUR_MS, size)


@in_loop
async def test_a_topic_without_limits_tells_so(site: Site, new_bus: OpenBus, topic: str) -> None:
    async with new_bus() as bus:
        await bus.ensure_topic(topic, retention=0, retention_bytes=0)
        info = await bus.topic(topic)
    assert info is not None
    assert info.retention_ms == (0 if site.keeps_for_ever else 31 * 24 * HOUR_MS)
    assert info.retention_bytes == (0 if site.limits_bytes else None)


@in_loop
async def test_a_topic_is_changed_as_far_as_the_engine_can(site: Site, new_bus: OpenBus, topic: str) -> None:
    async with new_bus(prefix="dev.") as bus:
        await bus.ensure_topic(topic, partitions=2, retention=60 * 60)
        before = await bus.topic(topic)
        assert before is not None
        changed = await bus.adjust_topic(topic, partitions=4, retention=2 * 60 * 60, retention_bytes=2 << 20)
        assert changed == await bus.topic(topic), "what is returned is what holds"
        unlimited = await bus.adjust_topic(topic, retention_bytes=0)
    assert changed == TopicInfo(
        topic,
        4 if site.has_partitions else 1,
        2 * HOUR_MS if site.adjusts_retention else HOUR_MS,
        (2 << 20) if site.limits_bytes else None,
    )
    assert unlimited.retention_bytes == (0 if site.limits_bytes else None)
    assert (unlimited.partitions, unlimited.retention_ms) == (changed.partitions, changed.retention_ms)


@in_loop
async def test_partitions_that_cannot_be_had_leave_the_rest_to_be_changed(
    site: Site, new_bus: OpenBus, topic: str
) -> None:
    async with new_bus() as bus:
        await bus.ensure_topic(topic, partitions=3, retention=60 * 60)
        for impossible in (1, 1_000_000_000):
            info = await bus.adjust_topic(topic, partitions=impossible, retention=2 * 60 * 60)
            assert info.partitions == (3 if site.has_partitions else 1)
            assert info.retention_ms == (2 * HOUR_MS if site.adjusts_retention else HOUR_MS)


@in_loop
async def test_nothing_that_is_no_size_is_asked_for(new_bus: OpenBus, topic: str) -> None:
    async with new_bus() as bus:
        for wrong in ({"partitions": 0}, {"retention": -1}, {"retention_bytes": -1}):
            with pytest.raises(InvalidArgument):
                await bus.ensure_topic(topic, **wrong)
            with pytest.raises(InvalidArgument):
                await bus.adjust_topic(topic, **wrong)


@in_loop
async def test_new_partitions_are_used_by_groups_that_are_at_work(site: Site, new_bus: OpenBus, topic: str) -> None:
    if not site.has_partitions:
        pytest.skip(f"{site.driver} has no partitions")
    async with new_bus() as bus:
        handler = Recorder()
        await bus.subscribe(topic, "shipping", handler)
        await bus.adjust_topic(topic, partitions=8)
        for number in range(100):
            await bus.send(topic, str(number), key=f"user:{number}")
        await handler.have(100)
    assert len({message.partition for message in handler.messages}) > 1


@in_loop
async def test_a_group_that_was_made_sees_what_is_published_before_it_subscribes(new_bus: OpenBus, topic: str) -> None:
    async with new_bus() as bus:
        await bus.ensure_group(topic, "shipping")
        await bus.ensure_group(topic, "shipping")
        await bus.publish(topic, b"early")
        await bus.ensure_group(topic, "shipping")
        handler = Recorder()
        await bus.subscribe(topic, "shipping", handler)
        (message,) = await handler.have(1)
    assert message.data == b"early"
    assert message.attempt == 1, "nobody had taken it before"


@in_loop
async def test_a_group_can_be_made_where_nothing_is_made_by_itself(new_bus: OpenBus, topic: str) -> None:
    async with new_bus(ensure=False, prefix="dev.") as bus:
        with pytest.raises(TopicMissing):
            await bus.subscribe(topic, "shipping", Recorder())
        await bus.ensure_group(topic, "shipping", max_deliver=3)
        handler = Recorder()
        await bus.subscribe(topic, "shipping", handler, max_deliver=3)
        await bus.publish(topic, b"x")
        await handler.have(1)
        with pytest.raises(InvalidArgument):
            await bus.ensure_group(topic, "two words")
        with pytest.raises(InvalidArgument):
            await bus.ensure_group(topic, "billing", max_deliver=-1)


@in_loop
async def test_a_message_tells_its_place_in_the_log(site: Site, new_bus: OpenBus, topic: str) -> None:
    async with new_bus() as bus:
        handler = Recorder()
        await bus.subscribe(topic, "shipping", handler)
        for number in range(3):
            await bus.publish(topic, str(number))
        messages = await handler.have(3)
        if not site.reads:
            assert {(message.partition, message.offset) for message in messages} == {(0, NO_OFFSET)}
            return
        for message in messages:
            read = bus.read(topic, message.partition, message.offset, message.offset + 1)
            assert [stored.data async for stored in read] == [message.data]


@in_loop
async def test_the_groups_of_a_topic_are_known_from_their_first_subscription_on(new_bus: OpenBus, topic: str) -> None:
    async with new_bus(prefix="dev.") as bus:
        assert await bus.groups(topic) == [], "a topic that does not exist has none, and looking does not make it"
        assert await bus.topic(topic) is None
        await bus.publish(topic, "an order")
        assert await bus.groups(topic) == [], "to publish is not to consume"
        orders = Recorder()
        first = await bus.subscribe(topic, "shipping.eu", orders)
        second = await bus.subscribe(topic, "billing", orders)
        while await bus.groups(topic) != ["billing", "shipping.eu"]:
            await asyncio.sleep(0.01)  # the http driver begins to consume when it has returned
        await first.close()
        await second.close()
        assert await bus.groups(topic) == ["billing", "shipping.eu"], "a group stays when its consumers leave"
