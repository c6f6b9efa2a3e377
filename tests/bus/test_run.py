"""What a handler says before its end, and what becomes of it."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Sequence
from concurrent.futures import CancelledError

import pytest
from prometheus_client import CollectorRegistry

from slipstream.bus import Message, Retry, open_bus
from slipstream.bus.drivers import Delivery
from slipstream.bus.run import Run
from tests.bus.conftest import OpenBus
from tests.bus.recorder import Recorder
from tests.client.loop import in_loop


@pytest.fixture(autouse=True)
def _short_last_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine that is told something at the end does not hear it: how long that is tried makes no difference."""
    monkeypatch.setattr("slipstream.bus.subscription.LAST_WORDS_S", 0.1)


async def unheard(delivery: Delivery) -> None:
    """An engine that is away."""
    await asyncio.Event().wait()


@in_loop
async def test_an_ack_that_the_engine_does_not_hear_ends_with_the_bus() -> None:
    async def act(message: Message) -> None:
        message.ack()

    before = asyncio.all_tasks()
    bus = await open_bus(driver="memory", registry=CollectorRegistry(), drain_timeout_ms=10)
    handler = Recorder(act)
    subscription = await bus.subscribe("orders", "shipping", handler)
    subscription._source.ack = unheard  # type: ignore[method-assign]
    await bus.publish("orders", b"x")
    await handler.have(1)
    await bus.close()
    assert asyncio.all_tasks() == before, "nothing is left behind"


@in_loop
async def test_a_thread_that_acks_does_not_wait_longer_than_the_bus() -> None:
    outcome: list[str] = []
    begun, ended = asyncio.Event(), threading.Event()

    def handler(message: Message) -> None:
        try:
            message.ack()
        except CancelledError:
            outcome.append("not heard")
        ended.set()

    async def begin(delivery: Delivery) -> None:
        begun.set()
        await unheard(delivery)

    bus = await open_bus(driver="memory", registry=CollectorRegistry(), drain_timeout_ms=10)
    subscription = await bus.subscribe("orders", "shipping", handler)
    subscription._source.ack = begin  # type: ignore[method-assign]
    await bus.publish("orders", b"x")
    await begun.wait()
    await bus.close()
    assert await asyncio.to_thread(ended.wait, 10)
    assert outcome == ["not heard"]


@in_loop
async def test_what_the_engine_has_been_told_is_not_extended() -> None:
    """On NATS that would put off the retry for as long as the handler runs."""
    extended: list[str] = []
    told = asyncio.Event()

    async def act(message: Message) -> None:
        if message.data == b"early":
            await message.nack(delay=3600)
            await message.extend(60)
            told.set()
        await asyncio.Event().wait()

    async with open_bus(driver="memory", registry=CollectorRegistry(), drain_timeout_ms=10) as bus:
        handler = Recorder(act)
        subscription = await bus.subscribe("orders", "shipping", handler, ack_deadline=0.03)
        extend = subscription._source.extend

        async def noted(deliveries: Sequence[Delivery], deadline_s: float) -> Sequence[Delivery]:
            extended.extend(delivery.id for delivery in deliveries)
            return await extend(deliveries, deadline_s)

        early = await bus.publish("orders", b"early")
        await told.wait()
        subscription._source.extend = noted  # type: ignore[method-assign]
        other = await bus.publish("orders", b"other")
        while extended.count(other) < 3:
            await asyncio.sleep(0.01)
        assert not handler.messages[0].lease_lost
    assert early not in extended


@in_loop
async def test_a_message_whose_handler_has_not_begun_is_given_back(registry: CollectorRegistry) -> None:
    """A task that is cancelled before it begins does nothing at all, and would keep its slot."""
    async with open_bus(driver="memory", registry=registry) as bus:
        handler = Recorder()
        subscription = await bus.subscribe("orders", "shipping", handler, ack_deadline=600, max_in_flight=1)
        begin = subscription._begin

        def begin_and_give_up(delivery: Delivery) -> None:
            begin(delivery)
            if delivery.attempt == 1:
                (run,) = subscription._runs
                run.give_up("closed in this moment")

        subscription._begin = begin_and_give_up  # type: ignore[method-assign]
        await bus.publish("orders", b"x")
        (message,) = await handler.have(1)
    assert message.attempt == 2
    labels = {"driver": "memory", "topic": "orders", "group": "shipping"}
    assert registry.get_sample_value("messages_inflight", labels) == 0


@in_loop
async def test_a_handler_that_is_stopped_at_the_end_has_not_failed() -> None:
    """Its message is given back, even where this was the last attempt."""

    async def act(message: Message) -> None:
        await asyncio.Event().wait()

    async with open_bus(driver="memory", registry=CollectorRegistry()) as bus:
        handler = Recorder(act)
        subscription = await bus.subscribe("orders", "shipping", handler, max_deliver=1)
        await bus.publish("orders", b"x")
        await handler.have(1)
        await subscription.close(0.01)
        assert [stored.data async for stored in bus.read("orders.DLQ")] == []


def again(message: Message) -> Delivery:
    """The same message, as an engine hands it out once more."""
    before = message._delivery
    return Delivery(id=before.id, topic=before.topic, data=before.data, attributes={}, attempt=2, handle=before.handle)


@in_loop
async def test_a_message_that_comes_again_is_settled_with_the_lease_it_has_now() -> None:
    """Its lease ran out while the engine could not be told: the handler is at it, and is not called twice."""
    gate = asyncio.Event()
    acked: list[Delivery] = []

    async def act(message: Message) -> None:
        await gate.wait()

    async with open_bus(driver="memory", registry=CollectorRegistry()) as bus:
        handler = Recorder(act)
        subscription = await bus.subscribe("orders", "shipping", handler)
        ack = subscription._source.ack

        async def noted(delivery: Delivery) -> None:
            acked.append(delivery)
            await ack(delivery)

        subscription._source.ack = noted  # type: ignore[method-assign]
        await bus.publish("orders", b"x")
        (message,) = await handler.have(1)
        latest = again(message)
        subscription._begin(latest)
        gate.set()
    assert acked == [latest]
    assert len(handler.messages) == 1


@in_loop
async def test_there_are_never_two_handlers_at_one_message() -> None:
    """One has settled it early and goes on; what comes again waits until it is done."""
    gate, told = asyncio.Event(), asyncio.Event()

    async def act(message: Message) -> None:
        if message.attempt == 1:
            await message.ack()
            told.set()
            await gate.wait()

    async with open_bus(driver="memory", registry=CollectorRegistry()) as bus:
        handler = Recorder(act)
        subscription = await bus.subscribe("orders", "shipping", handler)
        await bus.publish("orders", b"x")
        await told.wait()
        subscription._begin(again(handler.messages[0]))
        await bus.publish("orders", b"other")
        await handler.until(lambda: b"other" in handler.data)
        assert handler.data == [b"x", b"other"], "the second attempt has not begun"
        gate.set()
        await handler.have(3)


@in_loop
async def test_what_is_done_is_gone_without_the_garbage_collector(new_bus: OpenBus, topic: str) -> None:
    """It is set to look rarely where there is much to do: what it has to find makes a process grow meanwhile."""

    came: set[bytes] = set()
    all_came = asyncio.Event()

    async def handler(message: Message) -> None:
        if message.attempt == 1 and message.data == b"7":
            raise Retry("not yet", delay_ms=0)
        came.add(message.data)
        if len(came) == 50:
            all_came.set()

    def left() -> int:
        runs = (each for each in gc.get_objects() if isinstance(each, Run))
        return sum(run._subscription is subscription for run in runs)

    async with new_bus() as bus, asyncio.timeout(60):
        subscription = await bus.subscribe(topic, "shipping", handler)
        gc.collect()
        gc.disable()
        try:
            for number in range(50):
                await bus.publish(topic, str(number))
            await all_came.wait()
            while left():
                await asyncio.sleep(0.01)  # the engine is being told of the last
        finally:
            gc.enable()
