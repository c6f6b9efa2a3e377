"""Steps that wait for a person, or for a word from outside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from slipstream.bus.bus import Opening
from slipstream.slip import Control, Signal, Work, Worker
from slipstream.slip.topics import SIGNALS
from tests.client.loop import in_loop
from tests.slip.lab import lab, summary, table

OpenBus = Callable[[], Opening]


def waiting(**more: Any) -> dict[str, Any]:
    return {"id": "manager", "wait": "approval", **more}


def worker() -> Worker:
    made = Worker()

    @made.step("ship")
    async def ship(work: Work) -> dict[str, Any]:
        return {"reply": work.payload["manager"]["by"]}

    return made


@in_loop
async def test_it_goes_on_when_it_is_approved_on_every_engine(any_bus: OpenBus) -> None:
    async with any_bus() as bus, lab(bus, table(waiting(), "ship"), worker()) as made:
        await made.submit(payload={"order": 1})
        await made.told("waiting manager")
        assert "started ship" not in made.kinds()
        await Control(made.store, made.settings).approve("c-1", "manager", by="ada", note="fine", data={"limit": 5})
        await made.until(lambda: len(made.delivered) > 0)
    payload = made.delivered[0]["payload"]
    assert payload["manager"] == {"decision": "approve", "by": "ada", "note": "fine", "data": {"limit": 5}}
    assert payload["reply"] == "ada"


@in_loop
async def test_denied_is_failed(memory_bus: OpenBus) -> None:
    async with memory_bus() as bus, lab(bus, table(waiting(), "ship"), worker()) as made:
        await made.submit()
        await made.told("waiting manager")
        await Control(made.store, made.settings).deny("c-1", "manager", by="ada", note="too dear")
        await made.until(lambda: len(made.dead) > 0)
    assert made.dead[0]["error"] == {"code": "denied", "message": "denied by ada: too dear", "retryable": False}
    assert summary(made.dead[0]) == {"router": "OK", "manager": "ERROR", "ship": "SKIP"}


@in_loop
async def test_a_word_may_come_over_the_bus(memory_bus: OpenBus) -> None:
    async with memory_bus() as bus, lab(bus, table({**waiting(), "wait": "signal"}, "ship"), worker()) as made:
        await made.submit()
        await made.told("waiting manager")
        await bus.publish(SIGNALS, msgspec.json.encode(Signal("c-1", "manager", by="bank", data={"paid": 7})))
        await made.until(lambda: len(made.delivered) > 0)
        await bus.publish(SIGNALS, b"what?")
        await made.until(lambda: len(made.dead) > 0)
    assert made.delivered[0]["payload"]["manager"]["data"] == {"paid": 7}
    assert made.dead[0]["error"]["code"] == "malformed"


@in_loop
async def test_a_word_that_comes_first_is_kept_and_the_first_counts(memory_bus: OpenBus) -> None:
    async with memory_bus() as bus, lab(bus, table(waiting(), "ship"), worker()) as made:
        await bus.publish(SIGNALS, msgspec.json.encode(Signal("c-1", "manager", by="ada")), key="c-1")
        await bus.publish(SIGNALS, msgspec.json.encode(Signal("c-1", "manager", "deny", by="bob")), key="c-1")
        await made.until_kept("c-1", "signal:manager")
        await made.submit()
        await made.until(lambda: len(made.delivered) + len(made.dead) > 0)
    assert made.dead == []
    assert made.delivered[0]["payload"]["reply"] == "ada"


@pytest.mark.parametrize(
    ("on_deadline", "status"), [("fail", "ERROR"), ("skip", "SKIP"), ("go on", "OK")], ids=["fail", "skip", "go on"]
)
@in_loop
async def test_at_the_deadline_nobody_is_waited_for(memory_bus: OpenBus, on_deadline: str, status: str) -> None:
    step = waiting(deadline="100ms", on_deadline=on_deadline)
    async with memory_bus() as bus, lab(bus, table(step)) as made:
        await made.submit(payload={"reply": 1})
        await made.until(lambda: len(made.delivered) + len(made.dead) > 0)
        # Who decides now is too late.
        await Control(made.store, made.settings).approve("c-1", "manager")
        await made.submit(correlation_id="c-2")
        await made.ended("c-2")
    (out,) = [one for one in [*made.delivered, *made.dead] if one["envelope"]["correlationId"] == "c-1"]
    slip = out["envelope"]["routingSlip"]
    assert slip[1]["status"] == status
    assert made.kinds().count("completed") + made.kinds().count("dead-lettered manager") == 1


@in_loop
async def test_a_message_whose_time_is_over_waits_for_nobody(memory_bus: OpenBus) -> None:
    async with memory_bus() as bus, lab(bus, table(waiting(), "ship"), worker()) as made:
        await made.submit(timeout=0.2)
        await made.until(lambda: len(made.dead) > 0)
        await Control(made.store, made.settings).approve("c-1", "manager")
        await made.submit(correlation_id="c-2", timeout=0.2)
        await made.ended("c-2")
    assert {letter["error"]["code"] for letter in made.dead} == {"message_timeout"}
    assert "started ship" not in made.kinds()
