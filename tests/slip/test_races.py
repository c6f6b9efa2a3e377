"""What happens between two things that seldom happen at once."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
from collections.abc import Callable
from typing import Any

import pytest

from slipstream.bus import BusUnavailable
from slipstream.bus.opening import Opening
from slipstream.slip import Event, Itinerary, Reject, Router, Work, Worker, open_store
from slipstream.slip.branches import Branches
from slipstream.slip.outbox import Outbox
from slipstream.slip.slip import is_late
from slipstream.slip.topics import EGRESS, ROUTER
from tests.client.loop import in_loop
from tests.slip.lab import fast, lab, summary, table
from tests.slip.test_branches import Office, parallel

OpenBus = Callable[[], Opening]


def failing() -> Worker:
    worker = Worker()

    @worker.step("gift")
    async def gift(work: Work) -> None:
        raise Reject("none left")

    @worker.step("ship")
    async def ship(work: Work) -> None:
        pass

    return worker


@pytest.mark.parametrize("decentralised", [False, True])
@in_loop
async def test_an_optional_step_that_failed_does_not_hide_a_condition_that_cannot_be_decided(
    memory_bus: OpenBus, decentralised: bool
) -> None:
    slip = [
        {"id": "router", "status": "OK"},
        {"id": "gift", "status": "PENDING", "attributes": {"slip.optional": "true"}},
        {"id": "ship", "status": "PENDING", "attributes": {"slip.unless": "x"}},
    ]
    event = {
        "envelope": {"v": "1", "source": "test", "correlationId": "c-1", "routingSlip": slip},
        "type": "order.v1",
        "payload": {"reply": 1},
    }
    settings = fast(decentralised=decentralised)
    async with memory_bus() as bus, lab(bus, table("gift"), failing(), settings=settings) as made:
        await bus.publish(ROUTER, json.dumps(event))
        assert (await made.ended()).kind == "dead-lettered"
        await made.until(lambda: len(made.dead) > 0)
    assert made.dead[0]["error"]["code"] == "planning_failed"
    assert summary(made.dead[0]) == {"router": "OK", "gift": "SKIP", "ship": "ERROR"}
    assert made.delivered == []


@in_loop
async def test_a_message_that_has_failed_is_not_completed_because_a_planner_fails_too(memory_bus: OpenBus) -> None:
    router = Router(table("gift", "ship"))

    @router.planner("order.v1")
    def plan(event: Event, itinerary: Itinerary) -> None:
        if any(step.id == "gift" and step.status != "PENDING" for step in itinerary.steps):
            raise ValueError("there must be a gift")

    async with memory_bus() as bus, lab(bus, router, failing()) as made:
        await made.submit(payload={"reply": 1})
        assert (await made.ended()).kind == "dead-lettered"
        await made.until(lambda: len(made.dead) > 0)
    assert made.dead[0]["error"]["code"] == "rejected"


@in_loop
async def test_an_end_that_was_written_down_is_told_though_the_planner_would_decide_otherwise_now(
    memory_bus: OpenBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, buried = 0, 0
    router = Router(table("ship"))

    @router.planner("order.v1")
    def plan(event: Event, itinerary: Itinerary) -> None:
        nonlocal asked
        asked += 1
        if asked == 2:
            raise ValueError("just now I cannot say")

    bury = Outbox.bury

    async def bury_late(self: Outbox, *args: Any) -> None:
        nonlocal buried
        buried += 1
        if buried == 1:
            raise BusUnavailable("away")
        await bury(self, *args)

    monkeypatch.setattr(Outbox, "bury", bury_late)
    async with memory_bus() as bus, lab(bus, router, failing()) as made:
        await made.submit()
        assert (await made.ended()).kind == "dead-lettered"
        await made.until(lambda: len(made.dead) > 0)
    assert made.dead[0]["error"]["code"] == "planning_failed"


@in_loop
async def test_a_branch_that_ends_while_its_message_times_out_is_undone(
    memory_bus: OpenBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    office = Office("first", "geo", "credit", "score")
    ended, over = Branches.ended, asyncio.Event()

    async def end_late(self: Branches, branch: Event, error: Any) -> bool:
        if branch.envelope.correlation_id.endswith("credit"):
            await over.wait()  # its own end is written down, and its message ends meanwhile
        return await ended(self, branch, error)

    monkeypatch.setattr(Branches, "ended", end_late)
    async with memory_bus() as bus, lab(bus, table("first", parallel()), office.worker) as made:
        await made.submit(timeout=1)
        await made.until(lambda: len(made.dead) > 0)
        assert office.undone == ["geo", "first"]
        over.set()
        await made.told("completed", "c-1/enrich/credit")
        async with asyncio.timeout(30):
            while len(office.undone) < 4:
                await asyncio.sleep(0.01)
    assert sorted(office.undone) == ["credit", "first", "geo", "score"]
    assert len(made.dead) == 1


@in_loop
async def test_branches_are_joined_though_one_takes_longer_than_facts_are_kept(memory_bus: OpenBus) -> None:
    office = Office("geo", "credit", "score", "last")
    office.hold["credit"] = asyncio.Event()
    async with memory_bus() as bus, open_store(":memory:") as store:
        settings = fast(ttl_ms=300)
        async with lab(bus, table(parallel(), "last"), office.worker, settings=settings, store=store) as made:
            await made.submit(payload={"reply": 1})
            await made.told("completed", "c-1/enrich/geo")
            await asyncio.sleep(0.5)
            office.hold["credit"].set()
            async with asyncio.timeout(30):
                assert (await made.ended()).kind == "completed"
            await made.until(lambda: len(made.delivered) > 0)
            assert set(made.delivered[0]["payload"]["enrich"]["results"]) == {"geo", "credit"}
            while await store.facts("slip:c-1"):  # they are forgotten in the usual time after it
                await asyncio.sleep(0.01)


@in_loop
async def test_an_end_is_kept_for_as_long_as_the_timeout_may_ask_for_it(memory_bus: OpenBus) -> None:
    async with memory_bus() as bus, lab(bus, table("ship"), failing(), settings=fast(ttl_ms=200)) as made:
        await made.submit(payload={"reply": 1}, timeout=60.0)
        await made.ended()
        await asyncio.sleep(0.5)
        # A router that dies between telling the end and removing the timer leaves it, and the outcomes are there, too.
        assert await made.store.get("slip:c-1", "end:0") is not None


@in_loop
async def test_a_message_that_was_complete_in_time_is_delivered_though_its_time_is_over_meanwhile(
    memory_bus: OpenBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = Outbox.send

    async def send_late(self: Outbox, topic: str, event: Event, *args: Any, **options: Any) -> Any:
        if topic == EGRESS and not is_late(event, dt.datetime.now(dt.UTC)):
            raise BusUnavailable("away")
        return await send(self, topic, event, *args, **options)

    monkeypatch.setattr(Outbox, "send", send_late)
    route = table("ship", {"id": "gift", "unless": True})
    async with memory_bus() as bus, lab(bus, route, failing()) as made:
        await made.submit(payload={"reply": 1}, timeout=1)
        async with asyncio.timeout(30):
            assert (await made.ended()).kind == "completed"
            await made.until(lambda: len(made.delivered) > 0)
    assert made.dead == []


@in_loop
async def test_what_comes_too_late_does_not_end_the_message_while_it_is_undone(memory_bus: OpenBus) -> None:
    worker = Worker()
    busy, undoing = asyncio.Event(), asyncio.Event()

    @worker.step("first")
    async def first(work: Work) -> None:
        work.undo_with(1)

    @worker.undo("first")
    async def undo_first(work: Work) -> None:
        await undoing.wait()

    @worker.step("second")
    async def second(work: Work) -> None:
        work.undo_with(2)
        await busy.wait()

    @worker.undo("second")
    async def undo_second(work: Work) -> None:
        pass

    async with memory_bus() as bus, lab(bus, table("first", "second", "third"), worker) as made:
        await made.submit(timeout=1)
        await made.told("started undo:first")
        busy.set()
        await made.told("compensated undo:second")
        await made.submit(event_type="unknown.v1", correlation_id="c-2")
        await made.until(lambda: len(made.dead) > 0)
        assert made.dead[0]["envelope"]["correlationId"] == "c-2", "what came after it was heard, and it has not ended"
        await asyncio.sleep(0.1)
        assert len(made.dead) == 1
        undoing.set()
        await made.until(lambda: len(made.dead) > 1)
    assert summary(made.dead[1])["undo:first"] == "OK"
    assert "undo:second" not in summary(made.dead[1])
