"""Messages on lease: kept as long as they are ours, and given back when they are not."""

from __future__ import annotations

import asyncio
import threading

from slipstream.bus import Backoff, Message, SubscribeOptions
from tests.bus.conftest import OpenBus
from tests.bus.drivers.pubsub.conftest import opener
from tests.bus.drivers.pubsub.engine import Engine
from tests.bus.recorder import Recorder, failing
from tests.bus.sites.pubsub import PubSubSite
from tests.client.loop import in_loop


@in_loop
async def test_no_more_is_on_lease_than_there_are_slots(new_bus: OpenBus, topic: str) -> None:
    gate = asyncio.Event()

    async def act(message: Message) -> None:
        await gate.wait()

    async with new_bus() as bus:
        handler = Recorder(act)
        await bus.subscribe(topic, "shipping", handler, max_in_flight=3)
        await asyncio.gather(*(bus.publish(topic, str(number)) for number in range(50)))
        await handler.have(3)
        others = await Engine(bus).pull(f"{topic}.shipping")
        gate.set()
    assert len(others) == 47


@in_loop
async def test_what_was_acked_is_not_handed_out_after_the_close(new_bus: OpenBus, topic: str) -> None:
    """Not even when the leases are over: they take two seconds here, and end after the last handler began."""
    async with new_bus() as bus:
        handler = Recorder()
        await bus.subscribe(topic, "shipping", handler, ack_deadline=2)
        await asyncio.gather(*(bus.publish(topic, str(number)) for number in range(300)))
        await handler.have(300)
    async with new_bus() as bus:
        await asyncio.sleep(2.1)
        assert await Engine(bus).pull(f"{topic}.shipping") == []
    assert len(handler.messages) == 300


@in_loop
async def test_who_awaits_an_ack_knows_that_the_engine_has_heard_it(own_pubsub: PubSubSite, topic: str) -> None:
    gate, heard = asyncio.Event(), asyncio.Event()

    async def act(message: Message) -> None:
        await gate.wait()
        await message.ack()
        heard.set()

    async with opener(own_pubsub)() as bus:
        handler = Recorder(act)
        await bus.subscribe(topic, "shipping", handler)
        await bus.publish(topic, b"x")
        await handler.have(1)
        await asyncio.to_thread(own_pubsub.stop_server)
        gate.set()
        waiting = asyncio.create_task(heard.wait())
        await asyncio.wait({waiting}, timeout=0.3)
        assert not heard.is_set()
        await asyncio.to_thread(own_pubsub.start_server)
        await waiting


@in_loop
async def test_what_waits_for_its_retry_stays_on_lease(new_bus: OpenBus, topic: str) -> None:
    async with new_bus() as here, new_bus() as there:
        handler, other = Recorder(failing(1)), Recorder()
        await here.subscribe(topic, "shipping", handler, ack_deadline=2, backoff=[2.7])
        await here.publish(topic, b"x")
        await handler.have(1)
        await there.subscribe(topic, "shipping", other, ack_deadline=2)
        messages = await handler.have(2)
    assert [message.attempt for message in messages] == [1, 2]
    assert other.messages == []


@in_loop
async def test_what_waits_is_given_back_at_the_end_and_not_to_ourselves(new_bus: OpenBus, topic: str) -> None:
    async with new_bus() as bus:
        handler = Recorder(failing(99))
        subscription = await bus.subscribe(topic, "shipping", handler, backoff=Backoff(first=3600, longest=3600))
        await asyncio.gather(*(bus.publish(topic, str(number)) for number in range(20)))
        await handler.have(20)
        while subscription.in_flight:
            await asyncio.sleep(0.01)
        await subscription.close()
        assert len(handler.messages) == 20
        assert len(await Engine(bus).pull(f"{topic}.shipping")) == 20


@in_loop
async def test_a_subscription_that_was_deleted_is_made_again(new_bus: OpenBus, topic: str) -> None:
    async with new_bus() as bus:
        engine = Engine(bus)
        handler = Recorder()
        await bus.subscribe(topic, "shipping", handler)
        await bus.publish(topic, b"before")
        await handler.have(1)
        await engine.delete_subscription(f"{topic}.shipping")
        while f"{topic}.shipping" not in await engine.subscriptions():
            await asyncio.sleep(0.01)
        await bus.publish(topic, b"after")
        await handler.have(2)
    assert handler.data == [b"before", b"after"]


@in_loop
async def test_the_lag_is_what_this_subscriber_has(new_bus: OpenBus, topic: str) -> None:
    async with new_bus() as bus:
        driver = bus._driver
        source = await driver.subscribe(topic, "shipping", SubscribeOptions(max_in_flight=2))
        assert await source.lag() == 0
        await asyncio.gather(*(bus.publish(topic, str(number)) for number in range(5)))
        (delivery, *_) = await source.pull(1)
        while await source.lag() != 2:
            await asyncio.sleep(0.01)
        await source.ack(delivery)
        await source.stop()
        await source.close()
        assert await source.lag() == 0
        assert len(await Engine(bus).pull(f"{topic}.shipping")) == 4, "all but the one were given back"


@in_loop
async def test_no_thread_outlives_the_bus(new_bus: OpenBus, topic: str) -> None:
    before = set(threading.enumerate())
    async with new_bus() as bus:
        handler = Recorder()
        for number in range(3):
            await bus.subscribe(f"{topic}.{number}", "shipping", handler)
            await bus.publish(f"{topic}.{number}", b"x")
        await handler.have(3)
        passing = bus.tap(f"{topic}*")
        first = asyncio.ensure_future(anext(passing))
        while not first.done():
            await bus.publish(f"{topic}.0", b"x")
            await asyncio.wait({first}, timeout=0.05)
    ours = [
        thread
        for thread in set(threading.enumerate()) - before
        if not thread.name.startswith("asyncio_")  # of the loop, which joins them at its end
    ]
    for thread in ours:
        thread.join(30)  # gRPC ends its own when it notices; nobody can wait for that
    assert not [thread.name for thread in ours if thread.is_alive()]
