"""Steps that wait for a person, or for a word from outside."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from slipstream.bus import BusUnavailable
from slipstream.bus.opening import Opening
from slipstream.slip import Control, Signal, Work, Worker
from slipstream.slip.outbox import Outbox
from slipstream.slip.topics import SIGNALS
from tests.client.loop import in_loop
from tests.slip.lab import fast, lab, summary, table

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


# A router that dies between two things that it does: nothing of the message is on the bus


@pytest.mark.parametrize("deadline", [False, True])
@in_loop
async def test_a_message_whose_wait_is_over_goes_on_though_the_router_died_of_it(
    memory_bus: OpenBus, monkeypatch: pytest.MonkeyPatch, deadline: bool
) -> None:
    send = Outbox.send
    failed: list[str] = []

    def send_later(self: Outbox, topic: str, *args: Any, **given: Any) -> Any:
        if topic == "internal.nobody.v1" and not failed:
            failed.append(topic)
            raise BusUnavailable("away")
        return send(self, topic, *args, **given)

    monkeypatch.setattr(Outbox, "send", send_later)
    more = {"deadline": "20ms", "on_deadline": "go on"} if deadline else {}
    sent = asyncio.Event()

    async def take(_: object) -> None:
        sent.set()

    settings = fast(ack_deadline_ms=50)
    async with memory_bus() as bus, lab(bus, table(waiting(**more), "nobody"), settings=settings) as made:
        await bus.subscribe("internal.nobody.v1", "test", take)
        await made.submit()
        await made.told("waiting manager")
        if not deadline:
            await Control(made.store, made.settings).approve("c-1", "manager")
        async with asyncio.timeout(10):
            await sent.wait()
        while await made.store.facts("held:c-1"):
            await asyncio.sleep(0)
    assert failed


@in_loop
async def test_a_time_out_is_told_though_the_router_died_when_it_had_written_it_down(
    memory_bus: OpenBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    bury = Outbox.bury
    failed: list[str] = []

    async def bury_later(self: Outbox, *args: Any) -> None:
        if not failed:
            failed.append("away")
            raise BusUnavailable("away")
        await bury(self, *args)

    monkeypatch.setattr(Outbox, "bury", bury_later)
    settings = fast(ack_deadline_ms=50)
    async with memory_bus() as bus, lab(bus, table(waiting(), "ship"), worker(), settings=settings) as made:
        await made.submit(timeout=0.1)
        async with asyncio.timeout(10):
            assert (await made.ended()).kind == "dead-lettered"
            await made.until(lambda: len(made.dead) > 0)
    assert failed
    assert made.dead[0]["error"]["code"] == "message_timeout"
