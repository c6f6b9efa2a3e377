"""Pauses go by the clock of the engine, which keeps what waits: a broker whose clock is moved by hand shows it."""

from __future__ import annotations

import asyncio

from prometheus_client import CollectorRegistry

from slipstream.bus import Backoff, Bus, open_bus
from slipstream.testing import MemoryBroker
from tests.bus.recorder import Recorder, failing
from tests.client.loop import in_loop


@in_loop
async def test_a_retry_comes_when_the_engine_says_it_is_due() -> None:
    with MemoryBroker() as broker:
        async with open_bus(driver="http", url=broker.url, registry=CollectorRegistry()) as bus:
            handler = Recorder(failing(3))
            await bus.subscribe("orders", "shipping", handler, backoff=Backoff(first=60, longest=100))
            await bus.publish("orders", b"x")
            for attempt, pause_s in ((1, 60), (2, 100), (3, 100)):
                await handler.until(lambda attempt=attempt: handler.data.count(b"x") == attempt)  # type: ignore[misc]
                while not await is_waiting(bus, attempt):
                    pass
                await asyncio.to_thread(broker.advance, seconds=pause_s - 1)
                handled = len(handler.messages)
                await bus.publish("orders", b"other")  # is handled at once, so what was due would have come, too
                await handler.have(handled + 1)
                assert handler.data.count(b"x") == attempt, "not a second early"
                await asyncio.to_thread(broker.advance, seconds=1)
            await handler.until(lambda: handler.data.count(b"x") == 4)
        assert [message.attempt for message in handler.messages if message.data == b"x"] == [1, 2, 3, 4]


async def is_waiting(bus: Bus, attempt: int) -> bool:
    """Whether the broker has been told that the attempt failed."""
    group = await bus.native.group("orders", "shipping")
    return any(each.attempts == attempt and each.state == "waiting" for each in group.messages)
