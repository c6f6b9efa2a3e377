"""Steps that run branches in parallel: what is joined, when, and what becomes of the others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from slipstream.bus.opening import Opening
from slipstream.slip import Reject, Work, Worker
from tests.client.loop import in_loop
from tests.slip.lab import lab, plain, summary, table

OpenBus = Callable[[], Opening]


def parallel(join: Any = "all", **more: Any) -> dict[str, Any]:
    return {"id": "enrich", "parallel": {"geo": ["geo"], "credit": ["credit", "score"]}, "join": join, **more}


class Office:
    """A worker whose steps do as they are told."""

    def __init__(self, *step_ids: str) -> None:
        self.worker = Worker()
        self.fails: set[str] = set()
        self.hold: dict[str, asyncio.Event] = {}
        self.done: list[str] = []
        self.undone: list[Any] = []
        for step_id in step_ids:
            self.worker.step(step_id)(self.do)
            self.worker.undo(step_id)(self.undo)

    async def do(self, work: Work) -> None:
        if (event := self.hold.get(work.step.id)) is not None:
            await event.wait()
        if work.step.id in self.fails:
            raise Reject(f"{work.step.id} says no")
        work.payload[work.step.id] = f"{work.step.id} was here"
        work.undo_with({"of": work.step.id})
        self.done.append(work.step.id)

    async def undo(self, work: Work) -> None:
        self.undone.append(work.record["of"])


@in_loop
async def test_all_branches_run_and_their_results_are_joined_on_every_engine(any_bus: OpenBus) -> None:
    office = Office("geo", "credit", "score", "last")
    async with any_bus() as bus, lab(bus, table(parallel(), "last"), office.worker) as made:
        await made.submit(payload={"reply": 1})
        assert (await made.ended()).kind == "completed"
        await made.until(lambda: len(made.delivered) > 0)
        await made.until(lambda: len(made.kinds("c-1/enrich/credit")) == 6)
    payload = made.delivered[0]["payload"]
    assert payload["enrich"] == {
        "results": {"geo": {"geo": "geo was here"}, "credit": {"credit": "credit was here", "score": "score was here"}},
        "errors": {},
    }
    assert payload["last"] == "last was here"
    assert "geo" not in payload
    assert made.kinds("c-1/enrich/credit") == [
        "planned",
        "started credit",
        "finished credit",
        "started score",
        "finished score",
        "completed",
    ]
    assert len(made.delivered) == 1
    assert office.undone == []


@in_loop
async def test_one_branch_that_fails_fails_the_step_and_what_the_others_did_is_undone(memory_bus: OpenBus) -> None:
    office = Office("first", "geo", "credit", "score")
    office.fails = {"score"}
    async with memory_bus() as bus, lab(bus, table("first", parallel()), office.worker) as made:
        await made.submit()
        await made.until(lambda: len(made.dead) > 0)
    (letter,) = made.dead
    assert letter["error"]["code"] == "join_failed"
    assert "score says no" in letter["error"]["message"]
    assert sorted(office.undone) == ["credit", "first", "geo"]
    assert summary(letter) == {
        "router": "OK",
        "first": "OK",
        "enrich": "ERROR",
        "undo:geo": "OK",
        "undo:first": "OK",
    }, "what the branch that failed had done is undone with that branch"


@in_loop
async def test_a_branch_that_comes_after_the_step_has_failed_is_undone(memory_bus: OpenBus) -> None:
    office = Office("geo", "credit", "score")
    office.fails = {"credit"}
    office.hold["geo"] = asyncio.Event()
    async with memory_bus() as bus, lab(bus, table(parallel()), office.worker) as made:
        await made.submit()
        await made.until(lambda: len(made.dead) > 0)
        assert office.undone == []
        office.hold["geo"].set()
        await made.told("compensated undo:geo", "c-1/enrich/geo")
    assert office.undone == ["geo"]
    assert len(made.dead) == 1


@pytest.mark.parametrize("join", ["any", 1])
@in_loop
async def test_as_many_as_are_wanted_are_enough(memory_bus: OpenBus, join: Any) -> None:
    office = Office("geo", "credit", "score", "last")
    office.fails = {"credit"}
    async with memory_bus() as bus, lab(bus, table(parallel(join), "last"), office.worker) as made:
        await made.submit(payload={"reply": 1})
        await made.until(lambda: len(made.delivered) > 0)
    enrich = made.delivered[0]["payload"]["enrich"]
    assert enrich["results"] == {"geo": {"geo": "geo was here"}}
    assert made.dead == []


@in_loop
async def test_what_a_branch_did_that_nobody_waits_for_is_undone(memory_bus: OpenBus) -> None:
    office = Office("geo", "credit", "score", "last")
    office.hold["credit"] = asyncio.Event()
    async with memory_bus() as bus, lab(bus, table(parallel("any"), "last"), office.worker) as made:
        await made.submit(payload={"reply": 1})
        await made.ended()
        office.hold["credit"].set()
        await made.told("compensated undo:credit", "c-1/enrich/credit")
    assert "geo" not in office.undone
    assert len(made.delivered) == 1


@in_loop
async def test_at_the_deadline_it_goes_on_with_what_there_is(memory_bus: OpenBus) -> None:
    """Each case has a bus of its own, and they wait for the deadline together."""
    cases = [("fail", "ERROR", "dead-lettered"), ("skip", "SKIP", "completed"), ("go on", "OK", "completed")]
    await asyncio.gather(*(_at_the_deadline(memory_bus, *case) for case in cases))


async def _at_the_deadline(memory_bus: OpenBus, on_deadline: str, status: str, end: str) -> None:
    office = Office("geo", "credit", "score", "last")
    office.hold["credit"] = asyncio.Event()
    step = parallel(deadline="1s", on_deadline=on_deadline)
    async with memory_bus() as bus, lab(bus, table(step, "last"), office.worker) as made:
        await made.submit(payload={"reply": 1})
        assert (await made.ended()).kind == end
        await made.until(lambda: len(made.delivered) + len(made.dead) > 0)
        office.hold["credit"].set()
    told = made.delivered[0]["envelope"]["routingSlip"] if made.delivered else plain(made.dead[0]["slip"])
    assert next(one["status"] for one in told if one["id"] == "enrich") == status
    if made.delivered:
        assert made.delivered[0]["payload"]["enrich"]["results"] == {"geo": {"geo": "geo was here"}}


@in_loop
async def test_a_message_whose_time_is_over_takes_its_branches_with_it(memory_bus: OpenBus) -> None:
    office = Office("first", "geo", "credit", "score")
    office.hold["credit"] = asyncio.Event()
    async with memory_bus() as bus, lab(bus, table("first", parallel()), office.worker) as made:
        await made.submit(timeout=1)
        await made.until(lambda: len(made.dead) > 0)
        office.hold["credit"].set()
        await made.told("compensated undo:credit", "c-1/enrich/credit")
    assert made.dead[0]["error"]["code"] == "message_timeout"
    assert summary(made.dead[0])["undo:geo"] == "OK", "it had ended, and waited to be joined"
    assert sorted(office.undone) == ["credit", "first", "geo"]
    assert "score" not in office.done
    assert len(made.dead) == 1
