"""What is known of a slip by all."""

from __future__ import annotations

import datetime as dt

import pytest

from slipstream.slip import Envelope, Event, RoutingStep, Status, clock, open_store
from slipstream.slip.ledger import Ledger
from slipstream.slip.lookup import look_up
from slipstream.slip.slip import find, plan, settled, with_step
from tests.client.loop import in_loop


@in_loop
async def test_the_newest_is_the_one_that_has_come_farthest_whatever_the_clocks_say(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = dt.datetime.now(dt.UTC)
    steps = [RoutingStep(step_id, Status.PENDING) for step_id in ("a", "b", "c")]
    event = plan(Event(Envelope("1", "test", "c-1"), "order.v1"), steps, now)
    async with open_store(":memory:") as store:
        ledger = Ledger(store, ttl_ms=60_000)
        times = iter([1_000, 1_000, 900, 900])  # they stand still, and disagree
        monkeypatch.setattr(clock, "now_ms", lambda: next(times))
        await ledger.settle(event, "router", -1)
        for step_id in ("a", "b", "c"):
            step = find(event, step_id)
            assert step is not None
            event = with_step(event, settled(step, Status.OK, now))
            await ledger.settle(event, step_id, 0)
            assert await ledger.latest("c-1", 0) == event
            known = await look_up(store, "c-1")
            assert known is not None
            assert known.newest == {0: event}
        assert await ledger.latest("c-1", 1) is None


@in_loop
async def test_the_first_outcome_of_an_attempt_is_the_outcome() -> None:
    event = Event(
        Envelope("1", "test", "c-1", routing_slip=(RoutingStep("a", Status.OK),)), "order.v1", {"first": True}
    )
    other = Event(Envelope("1", "test", "c-1", routing_slip=(RoutingStep("a", Status.ERROR),)), "order.v1", {})
    async with open_store(":memory:") as store:
        ledger = Ledger(store, ttl_ms=60_000)
        assert await ledger.outcome(event, "a", 0) is None
        assert await ledger.settle(event, "a", 0) == event
        assert await ledger.settle(other, "a", 0) == event
        assert await ledger.outcome(event, "a", 0) == event
        assert await ledger.settle(other, "a", 1) == other
