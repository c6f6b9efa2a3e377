"""How the tracker listens: what it had goes to another router's after the ack deadline when it dies."""

from __future__ import annotations

from collections.abc import Callable

from slipstream.bus.opening import Opening
from slipstream.slip import SlipSettings, open_store
from slipstream.slip.tracker import Tracker
from tests.client.loop import in_loop


@in_loop
async def test_it_subscribes_with_the_ack_deadline_of_slips(
    memory_bus: Callable[[], Opening],
) -> None:
    async with memory_bus() as bus, open_store(":memory:") as store:
        subscription = await Tracker(store, SlipSettings(ack_deadline_ms=700)).start(bus)
        assert subscription.options.ack_deadline == 0.7
