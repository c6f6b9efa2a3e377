"""What is special to a broker in the same process."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from slipstream.bus import InvalidArgument, Message, open_bus
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


@in_loop
async def test_a_disk_that_has_failed_does_not_hold_up_the_end(tmp_path: Path) -> None:
    """What waits for the journal is never handed on, and nobody waits for that."""
    gate = asyncio.Event()

    async def act(message: Message) -> None:
        await gate.wait()

    bus = await open_bus(driver="embedded", data=str(tmp_path / "data"), registry=CollectorRegistry())
    handler = Recorder(act)
    subscription = await bus.subscribe("orders", "shipping", handler, max_in_flight=1, ack_deadline=0.5)
    await bus.publish("orders", b"one")
    await bus.publish("orders", b"two")
    await handler.have(1)
    bus.native.journal_failed(OSError(errno.ENOSPC, "no space left on device"))
    gate.set()
    while subscription.in_flight:
        await asyncio.sleep(0)
    async with asyncio.timeout(10):
        await bus.close()
    async with open_bus(driver="embedded", data=str(tmp_path / "data"), registry=CollectorRegistry()) as bus:
        await bus.subscribe("orders", "shipping", handler)
        await handler.until(lambda: handler.data.count(b"one") >= 2 and b"two" in handler.data)


@in_loop
async def test_a_message_that_no_server_could_take_is_refused() -> None:
    async with open_bus(driver="memory", registry=CollectorRegistry()) as bus:
        with pytest.raises(InvalidArgument, match="SLIPSTREAM_MAX_BATCH_BYTES"):
            await bus.publish("orders", bytes(16 << 20))
        await bus.publish("orders", bytes(15 << 20))
