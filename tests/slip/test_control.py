"""What people do with slips: run them again, or a copy of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from slipstream.bus import BusUnavailable
from slipstream.bus.opening import Opening
from slipstream.slip import Control, Envelope, Event, InvalidSlip, Reject, Work, Worker
from slipstream.slip.dead_letter import decode_dead_letter
from slipstream.slip.errors import NothingKept, RunAgain
from slipstream.slip.outbox import Outbox
from slipstream.slip.slip import run_of
from tests.client.loop import in_loop
from tests.slip.lab import fast, lab, summary, table

OpenBus = Callable[[], Opening]


class Shop:
    def __init__(self, *, broken: bool = True) -> None:
        self.worker = Worker()
        self.broken = broken
        self.seen: list[tuple[str, int, Any]] = []
        self.undone: list[tuple[str, Any]] = []

        @self.worker.step("reserve")
        async def reserve(work: Work) -> None:
            self.note(work)
            work.payload["reserved"] = True
            if work.payload.get("careful"):
                work.undo_with(len(self.seen))

        @self.worker.undo("reserve")
        async def release(work: Work) -> None:
            self.undone.append((work.correlation_id, work.record))

        @self.worker.step("charge")
        async def charge(work: Work) -> None:
            self.note(work)
            if self.broken:
                raise Reject("card declined")
            work.payload["reply"] = "thanks"

        @self.worker.step("ship")
        async def ship(work: Work) -> None:
            self.note(work)

    def note(self, work: Work) -> None:
        self.seen.append((work.step.id, work.attempt, dict(work.payload)))


ROUTES = table("reserve", "charge", "ship")


@in_loop
async def test_a_message_is_run_again_from_a_step_with_the_payload_as_it_was(memory_bus: OpenBus) -> None:
    shop = Shop()
    async with memory_bus() as bus, lab(bus, ROUTES, shop.worker) as made:
        await made.submit(payload={"order": 1})
        assert (await made.ended()).kind == "dead-lettered"
        shop.broken = False
        await Control(made.store, made.settings).rerun("c-1", "charge")
        assert (await made.ended(run=1)).kind == "completed"
        await made.until(lambda: len(made.delivered) > 0)
    assert [step for step, _, _ in shop.seen] == ["reserve", "charge", "charge", "ship"]
    assert shop.seen[2] == ("charge", 0, {"order": 1, "reserved": True})
    assert len(made.delivered) == 1
    assert "rerun" in made.kinds()


@in_loop
async def test_again_and_again_and_it_fails_again(memory_bus: OpenBus) -> None:
    shop = Shop()
    async with memory_bus() as bus, lab(bus, ROUTES, shop.worker) as made:
        control = Control(made.store, made.settings)
        await made.submit()
        await made.ended()
        for run in (1, 2):
            await control.rerun("c-1", "charge")
            assert (await made.ended(run=run)).kind == "dead-lettered"
        shop.broken = False
        await control.rerun("c-1", "reserve")
        assert (await made.ended(run=3)).kind == "completed"
        await control.rerun("c-1", "ship")
        assert (await made.ended(run=4)).kind == "completed"
    assert [step for step, _, _ in shop.seen] == [
        "reserve",
        "charge",
        "charge",
        "charge",
        "reserve",
        "charge",
        "ship",
        "ship",
    ]
    assert {attempt for _, attempt, _ in shop.seen} == {0}, "in every run they count from 0"


@in_loop
async def test_what_was_undone_must_be_done_again_first(memory_bus: OpenBus) -> None:
    shop = Shop()
    async with memory_bus() as bus, lab(bus, ROUTES, shop.worker) as made:
        control = Control(made.store, made.settings)
        await made.submit(payload={"careful": True})
        await made.ended()
        assert shop.undone == [("c-1", 1)]
        with pytest.raises(InvalidSlip, match="reserve had been undone: run it again from reserve"):
            await control.rerun("c-1", "charge")
        await control.rerun("c-1", "reserve")
        await made.ended(run=1)
        assert shop.undone == [("c-1", 1), ("c-1", 3)], "and in that run it is undone again"
        shop.broken = False
        await control.rerun("c-1", "reserve")
        assert (await made.ended(run=2)).kind == "completed"


@in_loop
async def test_a_copy_has_a_life_and_a_payload_of_its_own(memory_bus: OpenBus) -> None:
    shop = Shop(broken=False)
    async with memory_bus() as bus, lab(bus, ROUTES, shop.worker) as made:
        control = Control(made.store, made.settings)
        await made.submit(payload={"order": 1})
        await made.ended()
        copied = await control.copy("c-1", "charge", payload={"order": 2})
        await made.ended(copied)
        named = await control.copy("c-1", "ship", correlation_id_of_copy="mine")
        await made.ended("mine")
        await made.until(lambda: len(made.delivered) == 3)
        with pytest.raises(InvalidSlip, match="there is a message mine already"):
            await control.copy("c-1", "ship", correlation_id_of_copy="mine")
    assert named == "mine"
    assert copied.startswith("c-1~")
    assert shop.seen[3] == ("charge", 0, {"order": 2})
    assert made.kinds("c-1").count("completed") == 1


@in_loop
async def test_what_makes_no_sense_is_said(memory_bus: OpenBus) -> None:
    shop = Shop()
    async with memory_bus() as bus, lab(bus, ROUTES, shop.worker) as made:
        control = Control(made.store, made.settings)
        await made.submit()
        await made.ended()
        with pytest.raises(InvalidSlip, match="nothing is kept of c-7"):
            await control.rerun("c-7", "charge")
        with pytest.raises(InvalidSlip, match=r"c-1 has no step pay; there are charge, reserve"):
            await control.rerun("c-1", "pay")
        with pytest.raises(InvalidSlip, match="has not come to ship"):
            await control.rerun("c-1", "ship")


@in_loop
async def test_a_copy_of_a_message_that_was_run_again_is_a_first_run(memory_bus: OpenBus) -> None:
    shop = Shop(broken=False)
    async with memory_bus() as bus, lab(bus, ROUTES, shop.worker) as made:
        control = Control(made.store, made.settings)
        await made.submit()
        await made.ended()
        await control.rerun("c-1", "ship")
        await made.ended(run=1)
        copied = await control.copy("c-1", "ship")
        await made.until(lambda: "completed" in made.kinds(copied))
    assert {one.run for one in made.progress if one.correlation_id == copied} == {0}
    assert "dropped" not in made.kinds(copied)


@in_loop
async def test_a_copy_of_a_branch_is_no_branch(memory_bus: OpenBus) -> None:
    shop = Shop(broken=False)
    routes = table({"id": "look", "parallel": {"a": ["reserve", "ship"], "b": ["charge"]}})
    async with memory_bus() as bus, lab(bus, routes, shop.worker) as made:
        await made.submit(payload={"reply": 1})
        await made.ended()
        copied = await Control(made.store, made.settings).copy("c-1/look/a", "ship")
        await made.ended(copied)
        async with asyncio.timeout(10):
            await made.until(lambda: len(made.delivered) == 2)
    assert made.delivered[1]["envelope"]["correlationId"] == copied


@in_loop
async def test_a_copy_that_fails_leaves_what_the_original_has_done(memory_bus: OpenBus) -> None:
    shop = Shop(broken=False)
    async with memory_bus() as bus, lab(bus, ROUTES, shop.worker) as made:
        control = Control(made.store, made.settings)
        await made.submit(payload={"careful": True})
        await made.ended()
        shop.broken = True
        copied = await control.copy("c-1", "charge")
        assert (await made.ended(copied)).kind == "dead-lettered"
        again = await control.copy("c-1", "reserve")
        assert (await made.ended(again)).kind == "dead-lettered"
    assert [slip for slip, _ in shop.undone] == [again], "its own, and no other"


@in_loop
async def test_a_copy_does_not_build_on_what_was_undone(memory_bus: OpenBus) -> None:
    shop = Shop()
    async with memory_bus() as bus, lab(bus, ROUTES, shop.worker) as made:
        await made.submit(payload={"careful": True})
        await made.ended()
        with pytest.raises(InvalidSlip, match="reserve had been undone"):
            await Control(made.store, made.settings).copy("c-1", "charge")


@in_loop
async def test_a_message_that_waits_is_run_again_and_ends_once(memory_bus: OpenBus) -> None:
    routes = table({"id": "manager", "wait": "approval"}, "ship")
    shop = Shop()
    async with memory_bus() as bus, lab(bus, routes, shop.worker) as made:
        control = Control(made.store, made.settings)
        await made.submit(payload={"reply": 1})
        await made.told("waiting manager")
        await control.rerun("c-1", "manager")
        await made.told("rerun")
        await made.until(lambda: made.kinds().count("waiting manager") == 2)
        await control.approve("c-1", "manager")
        assert (await made.ended(run=1)).kind == "completed"
        await made.submit(correlation_id="c-2")
        await made.told("waiting manager", "c-2")
    assert [one.run for one in made.progress if one.kind == "dropped"] == [0]
    assert len(made.delivered) == 1
    assert len(shop.seen) == 1


@in_loop
async def test_a_message_is_cancelled_and_what_it_has_done_is_undone(memory_bus: OpenBus) -> None:
    shop = Shop()
    async with memory_bus() as bus, lab(bus, table("reserve", "nobody"), shop.worker) as made:
        control = Control(made.store, made.settings)
        await made.submit(payload={"careful": True})
        await made.told("finished reserve")
        await control.cancel("c-1", "wrong address")
        assert (await made.ended()).kind == "dead-lettered"
        await made.until(lambda: len(made.dead) > 0)
        with pytest.raises(InvalidSlip, match="c-1 is over already"):
            await control.cancel("c-1")
        with pytest.raises(InvalidSlip, match="nothing is kept of c-7"):
            await control.cancel("c-7")
    assert made.dead[0]["error"] == {"code": "cancelled", "message": "wrong address", "retryable": False}
    assert made.dead[0]["lastStep"]["id"] == "nobody"
    assert shop.undone == [("c-1", 1)]
    assert len(made.dead) == 1


@pytest.mark.parametrize("how", ["cancel", "rerun"])
@in_loop
async def test_what_is_over_while_it_is_worked_at_goes_no_further(
    memory_bus: OpenBus, registry: CollectorRegistry, how: str
) -> None:
    worker, begun, go = Worker(), asyncio.Event(), asyncio.Event()
    runs: list[int] = []

    @worker.step("slow")
    async def slow(work: Work) -> None:
        if not begun.is_set():
            begun.set()
            await go.wait()

    @worker.step("charge")
    async def charge(work: Work) -> None:
        runs.append(run_of(work.event))

    async with memory_bus() as bus, lab(bus, table("slow", "charge"), worker) as made:
        control = Control(made.store, made.settings)
        await made.submit()
        await begun.wait()
        if how == "cancel":
            await control.cancel("c-1")
            await made.ended()
        else:
            await control.rerun("c-1", "slow")
            await made.ended(run=1)
        go.set()
        while not registry.get_sample_value("slips_total", {"event": "late"}):
            await asyncio.sleep(0.01)
    assert runs == ([] if how == "cancel" else [1])


@pytest.mark.parametrize("how", ["cancel", "time out"])
@in_loop
async def test_an_end_from_outside_is_told_though_its_router_died_and_the_message_moved_on(
    memory_bus: OpenBus, registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    worker, begun, go = Worker(), asyncio.Event(), asyncio.Event()
    bury = Outbox.bury

    @worker.step("slow")
    async def slow(work: Work) -> None:
        begun.set()
        await go.wait()

    @worker.step("charge")
    async def charge(work: Work) -> None:
        raise AssertionError("it is over")

    async def bury_later(self: Outbox, *args: Any) -> None:
        if not go.is_set():
            go.set()
            raise BusUnavailable("away")
        await bury(self, *args)

    monkeypatch.setattr(Outbox, "bury", bury_later)
    settings = fast(ack_deadline_ms=300)
    async with memory_bus() as bus, lab(bus, table("slow", "charge"), worker, settings=settings) as made:
        await made.submit(timeout=1 if how == "time out" else None)
        await begun.wait()
        if how == "cancel":
            await Control(made.store, made.settings).cancel("c-1")
        while not registry.get_sample_value("slips_total", {"event": "late"}):
            await asyncio.sleep(0.01)
        async with asyncio.timeout(10):
            await made.until(lambda: len(made.dead) > 0)
        assert (await made.ended()).kind == "dead-lettered"
    assert [letter["error"]["code"] for letter in made.dead] == ["cancelled" if how == "cancel" else "message_timeout"]


@in_loop
async def test_an_event_may_be_submitted_through_the_store(memory_bus: OpenBus) -> None:
    shop = Shop(broken=False)
    async with memory_bus() as bus, lab(bus, ROUTES, shop.worker) as made:
        event = Event(Envelope("1", "test", "c-1"), "order.v1", {"order": 1})
        await Control(made.store, made.settings).submit(event)
        assert (await made.ended()).kind == "completed"


# Undoing


@in_loop
async def test_a_step_that_fails_is_undone_itself_if_it_has_left_a_record(memory_bus: OpenBus) -> None:
    worker, undone = Worker(), list[Any]()

    @worker.step("a")
    async def half(work: Work) -> None:
        work.undo_with({"attempt": work.attempt})
        raise RuntimeError("after it was charged")

    @worker.undo("a")
    async def undo(work: Work) -> None:
        undone.append(work.record)

    async with memory_bus() as bus, lab(bus, table({"id": "a", "max_attempts": 2}), worker) as made:
        await made.submit()
        await made.until(lambda: len(made.dead) > 0)
    assert undone == [{"attempt": 1}]
    assert summary(made.dead[0]) == {"router": "OK", "a": "ERROR", "undo:a": "OK"}


@in_loop
async def test_what_is_done_is_undone_in_reverse_on_every_engine(any_bus: OpenBus) -> None:
    worker, undone = Worker(), list[str]()
    for step_id in ("a", "b", "c"):

        @worker.step(step_id)
        async def do(work: Work) -> None:
            if work.step.id == "c":
                raise Reject("no")
            work.undo_with({"id": work.step.id})

        @worker.undo(step_id)
        async def undo(work: Work) -> None:
            undone.append(work.record["id"])

    async with any_bus() as bus, lab(bus, table("a", "b", "c", "d"), worker) as made:
        await made.submit()
        await made.until(lambda: len(made.dead) > 0)
        await made.until(lambda: len(made.kinds()) == 13)
    assert undone == ["b", "a"]
    assert summary(made.dead[0]) == {
        "router": "OK",
        "a": "OK",
        "b": "OK",
        "c": "ERROR",
        "d": "SKIP",
        "undo:b": "OK",
        "undo:a": "OK",
    }
    assert made.dead[0]["lastStep"]["id"] == "c"
    assert made.dead[0]["compensation"] == {"undone": ["b", "a"], "failed": []}
    assert made.kinds()[-5:] == [
        "started undo:b",
        "compensated undo:b",
        "started undo:a",
        "compensated undo:a",
        "dead-lettered c",
    ]


@in_loop
async def test_what_cannot_be_undone_is_told_and_keeps_nobody_from_it(memory_bus: OpenBus) -> None:
    worker, undone = Worker(), list[str]()

    @worker.step("a")
    @worker.step("b")
    async def do(work: Work) -> None:
        work.undo_with(work.step.id)

    @worker.step("c")
    async def fail(work: Work) -> None:
        raise Reject("no")

    @worker.undo("a")
    async def undo_a(work: Work) -> None:
        undone.append("a")

    @worker.undo("b")
    async def undo_b(work: Work) -> None:
        raise RuntimeError("it is gone")

    async with memory_bus() as bus, lab(bus, table("a", "b", "c"), worker) as made:
        await made.submit()
        await made.until(lambda: len(made.dead) > 0)
    assert undone == ["a"]
    assert made.dead[0]["compensation"] == {"undone": ["a"], "failed": ["b"]}
    assert made.dead[0]["error"]["message"] == "no"
    assert "compensation-failed undo:b" in made.kinds()
    assert made.kinds().count("retried undo:b") == 2


# Once, and from a dead letter


@in_loop
async def test_who_asks_twice_for_the_run_after_a_run_gets_one(memory_bus: OpenBus) -> None:
    shop = Shop()
    async with memory_bus() as bus, lab(bus, ROUTES, shop.worker) as made:
        await made.submit()
        await made.ended()
        shop.broken = False
        control = Control(made.store, made.settings)
        await control.rerun("c-1", "charge", after_run=0)
        await control.rerun("c-1", "charge", after_run=0)
        assert (await made.ended(run=1)).kind == "completed"
        with pytest.raises(RunAgain, match="c-1 was run again meanwhile: run 1 is its newest, and not 0"):
            await control.rerun("c-1", "charge", after_run=0)
        with pytest.raises(NothingKept, match="nothing is kept of c-9"):
            await control.rerun("c-9", "charge", after_run=0)
    assert made.kinds().count("rerun") == 1


@in_loop
async def test_a_message_of_which_nothing_is_kept_is_run_again_from_its_dead_letter(memory_bus: OpenBus) -> None:
    shop = Shop()
    async with memory_bus() as bus:
        async with lab(bus, ROUTES, shop.worker) as before:
            await before.submit(payload={"sum": 7})
            await before.ended()
            await before.until(lambda: bool(before.dead))
        letter = decode_dead_letter(msgspec.json.encode(before.dead[0]))
        shop.broken = False
        async with lab(bus, ROUTES, shop.worker) as made:  # with a store that has never heard of it
            control = Control(made.store, made.settings)
            with pytest.raises(InvalidSlip, match="c-1 has not come to ship"):
                await control.rerun_letter(letter, "ship", after_run=0)
            await control.rerun_letter(letter, "charge", after_run=0)
            assert (await made.ended(run=1)).kind == "completed"
            with pytest.raises(RunAgain):
                await control.rerun_letter(letter, "charge", after_run=0)
    assert shop.seen[-2:] == [
        ("charge", 0, {"sum": 7, "reserved": True}),
        ("ship", 0, {"sum": 7, "reserved": True, "reply": "thanks"}),
    ]
    assert made.kinds() == ["rerun", "started charge", "finished charge", "started ship", "finished ship", "completed"]


@in_loop
async def test_what_a_dead_letter_says_was_undone_is_not_built_upon(memory_bus: OpenBus) -> None:
    shop = Shop()
    async with memory_bus() as bus, lab(bus, ROUTES, shop.worker) as made:
        await made.submit(payload={"careful": True})
        await made.ended()
        await made.until(lambda: bool(made.dead))
        letter = decode_dead_letter(msgspec.json.encode(made.dead[0]))
    async with memory_bus() as bus, lab(bus, ROUTES, shop.worker) as new:
        with pytest.raises(InvalidSlip, match="reserve had been undone: run it again from reserve"):
            await Control(new.store, new.settings).rerun_letter(letter, "charge", after_run=0)
