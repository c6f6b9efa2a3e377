"""Slips that decode, and that nobody could follow: each is a dead letter with a reason, and never comes for ever."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from slipstream.bus import Message
from slipstream.bus.opening import Opening
from slipstream.slip import Event, Itinerary, Router, RoutingStep, SlipSettings, Status, Work, Worker, open_store
from slipstream.slip.incoming import why_not_step
from slipstream.slip.topics import INGRESS, PROGRESS, ROUTER, SIGNALS, default_topic
from slipstream.slip.tracker import Tracker
from tests.client.loop import in_loop
from tests.slip.lab import fast, lab, table

OpenBus = Callable[[], Opening]

PLANNED = {"id": "router", "status": "OK"}
AHEAD = {"id": "charge", "status": "PENDING"}


def message(*steps: dict[str, Any], **envelope: Any) -> bytes:
    fields = {"v": "1", "source": "elsewhere", "correlationId": "c-1", "routingSlip": steps, **envelope}
    return json.dumps({"envelope": fields, "type": "order.v1", "payload": {"reply": 1}}).encode()


def hinting(name: str, text: str) -> bytes:
    return message(PLANNED, {**AHEAD, "attributes": {name: text}})


NONSENSE = {
    "a topic that no engine takes": (message(PLANNED, {**AHEAD, "nextTopic": "two words"}), "topic 'two words'"),
    "an id that makes no topic": (message(PLANNED, {**AHEAD, "id": "two words"}), "topic 'internal.two words.v1'"),
    "two steps with one id": (message(PLANNED, AHEAD, AHEAD), "two steps charge"),
    "a reply to nowhere": (message(PLANNED, AHEAD, replyTo="two words"), "replyTo"),
    "an attribute without a name": (hinting("", "x"), "needs a name"),
    "a run that is no number": (message({**PLANNED, "attributes": {"slip.run": "one"}}, AHEAD), "slip.run"),
    "a parent that is none": (message({**PLANNED, "attributes": {"slip.parent": "{}"}}, AHEAD), "slip.parent"),
    "a pause until never": (hinting("slip.notBefore", "9" * 40), "slip.notBefore"),
    "a time-out that is no number": (hinting("slip.timeoutMs", "soon"), "slip.timeoutMs"),
    "a deadline that is no number": (hinting("slip.deadlineMs", "-1"), "slip.deadlineMs"),
    "an end of the deadline that nobody knows": (hinting("slip.onDeadline", "cry"), "slip.onDeadline"),
    "branches that are none": (hinting("slip.branches", "[]"), "slip.branches"),
    "branches that lead nowhere": (
        hinting("slip.branches", '{"a": [{"id": "two words", "status": "PENDING"}]}'),
        "slip.branches",
    ),
    "a join of I do not know how many": (hinting("slip.join", "most"), "slip.join"),
    "records that are none": (hinting("slip.undoBranches", "{}"), "slip.undoBranches"),
    "an undoing of nothing": (message({**AHEAD, "attributes": {"slip.undoes": "x"}}), "nothing was done"),
}


@pytest.mark.parametrize("topic", [INGRESS, ROUTER, default_topic("charge")])
@pytest.mark.parametrize("case", NONSENSE)
@in_loop
async def test_a_slip_that_nobody_can_follow_is_a_dead_letter(memory_bus: OpenBus, case: str, topic: str) -> None:
    data, reason = NONSENSE[case]
    worker = Worker()

    @worker.step("charge")
    async def charge(work: Work) -> None:
        raise AssertionError("nobody asked for this")

    async with memory_bus() as bus, lab(bus, table("charge"), worker) as seen:
        await bus.publish(topic, data)
        await seen.until(lambda: bool(seen.dead))
    (letter,) = seen.dead
    assert letter["error"]["code"] == "malformed"
    assert reason in letter["error"]["message"]
    assert letter["envelope"]["correlationId"] == "c-1"
    assert letter["payload"] == {"reply": 1}


@pytest.mark.parametrize("topic", [INGRESS, ROUTER])
@in_loop
async def test_a_service_that_fails_and_does_not_say_why_has_failed(memory_bus: OpenBus, topic: str) -> None:
    undone: list[Any] = []
    worker = Worker()

    @worker.undo("charge")
    async def refund(work: Work) -> None:
        undone.append(work.record)

    charged = {"id": "charge", "status": "OK", "attributes": {"slip.undo": '"R-17"'}}
    failed = {"id": "ship", "status": "ERROR", "error": None}
    ahead = {"id": "tell", "status": "PENDING"}
    async with memory_bus() as bus, lab(bus, table("charge"), worker) as seen:
        await bus.publish(topic, message(PLANNED, charged, failed, ahead))
        await seen.ended()
        await seen.until(lambda: bool(seen.dead))
    (letter,) = seen.dead
    assert letter["error"] == {"code": "unknown", "message": "ship failed, and nobody said why", "retryable": False}
    assert letter["lastStep"]["id"] == "ship"
    assert {step["id"]: step["status"] for step in letter["slip"]} == {
        "router": "OK",
        "charge": "OK",
        "ship": "ERROR",
        "tell": "SKIP",
        "undo:charge": "OK",
    }
    assert undone == ["R-17"]


@pytest.mark.parametrize("wrong", [RoutingStep("two words", Status.PENDING), RoutingStep("", Status.PENDING)])
@in_loop
async def test_a_planner_that_plans_what_cannot_be_sent_makes_a_dead_letter(
    memory_bus: OpenBus, wrong: RoutingStep
) -> None:
    router = Router(table("charge"))

    @router.planner("order.v1")
    def plan(event: Event, itinerary: Itinerary) -> None:
        itinerary.insert(wrong)

    async with memory_bus() as bus, lab(bus, router) as seen:
        await seen.submit()
        await seen.ended()
        await seen.until(lambda: bool(seen.dead))
    assert seen.dead[0]["error"]["code"] == "planning_failed"


def test_a_step_that_is_sent_nowhere_needs_no_topic() -> None:
    assert why_not_step(RoutingStep("the manager", Status.PENDING, attributes={"slip.wait": "approval"})) == ""
    assert why_not_step(RoutingStep("the manager", Status.SKIP)) == ""
    assert "cannot be used" in why_not_step(RoutingStep("the manager", Status.PENDING))


NO_TEXT = [b"\xff", b'[{"kind": "\xff"}]', b"[" * 100_000, b"[" + b'{"data":' * 100_000, b"", b"null", b"[1]"]


@pytest.mark.parametrize("data", NO_TEXT, ids=range(len(NO_TEXT)))
@in_loop
async def test_what_is_no_text_is_passed_by_everywhere(memory_bus: OpenBus, data: bytes) -> None:
    """What follows is handled, and nothing comes again for ever."""
    worker = Worker()

    @worker.step("charge")
    async def charge(work: Work) -> None:
        """Does nothing, well."""

    topics = [INGRESS, ROUTER, SIGNALS, default_topic("charge")]
    router = Router(table("charge"))
    async with memory_bus() as bus, open_store(":memory:") as store:
        dead: asyncio.Queue[Any] = asyncio.Queue()
        tracked: asyncio.Queue[int] = asyncio.Queue()

        async def keep(message: Message) -> None:
            await dead.put(message.json())

        async def track(message: Message) -> None:
            await Tracker(store, SlipSettings())._note(message)
            await tracked.put(message.attempt)

        await bus.subscribe("internal.deadletter.v1", "test", keep)
        await bus.subscribe(PROGRESS, "test", track)
        async with router.running(bus, store, fast()), worker.running(bus, store, fast()):
            for topic in [PROGRESS, *topics]:
                await bus.publish(topic, data)
            letters = [await dead.get() for _ in topics]
            assert await tracked.get() == 1
    assert {letter["error"]["code"] for letter in letters} == {"malformed"}
