"""What is special to a broker in the same process."""

from __future__ import annotations

import asyncio

from prometheus_client import CollectorRegistry

from slipstream.bus import Message, open_bus
from tests.bus.recorder import Recorder
from tests.client.loop import in_loop


@in_loop
async def test_a_message_that_has_the_place_of_another_is_not_acked_by_its_handler() -> None:
    """The topic is deleted under a handler and made again: both messages are the first of their topic."""
    gate = asyncio.Event()

    async def act(message: Message) -> None:
        if message.data == b"old":
            await gate.wait()
        elif message.attempt == 1:
            gate.set()
            while not old_is_done():
                await asyncio.sleep(0.01)
            raise RuntimeError("the new one fails at first")

    def old_is_done() -> bool:
        return subscription.in_flight == 1

    async with open_bus(driver="memory", registry=CollectorRegistry()) as bus:
        handler = Recorder(act)
        subscription = await bus.subscribe("orders", "shipping", handler, backoff=[0])
        await bus.publish("orders", b"old")
        await handler.have(1)
        await bus.native.delete_topic("orders")
        await bus.publish("orders", b"new")
        await handler.have(3)
    assert handler.data == [b"old", b"new", b"new"], "the ack of the old one did not count for the new one"
