"""Whoever may publish can send anything: it is a dead letter, and never comes again and again."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from slipstream.bus import InvalidArgument
from slipstream.bus.opening import Opening
from slipstream.slip import Work, Worker
from slipstream.slip.topics import PROGRESS, ROUTER, SIGNALS, default_topic
from tests.client.loop import in_loop
from tests.slip.lab import fast, lab, table

OpenBus = Callable[[], Opening]

FIRST = {"id": "router", "status": "OK"}


def pending(**more: Any) -> dict[str, Any]:
    return {"id": "a", "status": "PENDING", **more}


def hinted(**hints: str) -> dict[str, Any]:
    return pending(attributes={f"slip.{name}": value for name, value in hints.items()})


HOSTILE: dict[str, list[dict[str, Any]]] = {
    "run": [{**FIRST, "attributes": {"slip.run": "x"}}, pending()],
    "run below nought": [{**FIRST, "attributes": {"slip.run": "-1"}}, pending()],
    "parent": [{**FIRST, "attributes": {"slip.parent": "x"}}, pending()],
    "branches": [FIRST, hinted(branches="x")],
    "no branches": [FIRST, hinted(branches="{}")],
    "branch without steps": [FIRST, hinted(branches='{"one": []}', join="x")],
    "join": [FIRST, hinted(branches='{"one": [{"id": "a", "status": "PENDING"}]}', join="x")],
    "hints in a branch": [
        FIRST,
        hinted(
            branches=json.dumps(
                {
                    "one": [
                        {"id": "b", "status": "PENDING", "attributes": {"slip.wait": "signal", "slip.deadlineMs": "x"}}
                    ]
                }
            )
        ),
    ],
    "deadline": [FIRST, hinted(wait="approval", deadlineMs="x")],
    "deadline below nought": [FIRST, hinted(wait="approval", deadlineMs="-99999999999999")],
    "deadline without end": [FIRST, hinted(wait="approval", deadlineMs="9" * 30)],
    "deadline of branches": [FIRST, hinted(branches='{"one": [{"id": "a", "status": "PENDING"}]}', deadlineMs="x")],
    "not before": [FIRST, hinted(notBefore="x")],
    "undo of branches": [
        FIRST,
        {"id": "b", "status": "OK", "attributes": {"slip.undoBranches": "x"}},
        {"id": "a", "status": "ERROR", "error": {"code": "no"}},
    ],
    "the same step twice": [FIRST, pending(), pending()],
    "only undoing": [{"id": "undo:a", "status": "OK", "attributes": {"slip.undoes": "a"}}],
    "undoing what never ended": [FIRST, {"id": "undo:a", "status": "OK", "attributes": {"slip.undoes": "a"}}],
    "an error without one": [FIRST, pending(status="ERROR")],
    "attempt": [FIRST, pending(attempt=2**70)],
    "topic": [FIRST, pending(nextTopic="no topic!")],
    "id": [FIRST, {"id": "no topic!", "status": "PENDING"}],
    "to the router itself": [FIRST, pending(nextTopic=ROUTER)],
    "the router's own step": [{"id": "router", "status": "PENDING"}],
    "transport": [FIRST, pending(attributes={"": "x"})],
}


def worker() -> Worker:
    made = Worker()

    @made.step("a")
    async def a(work: Work) -> None:
        pass

    return made


def event(slip: list[dict[str, Any]], payload: Any = None, **envelope: Any) -> str:
    head = {"v": "1", "source": "test", "correlationId": "c-1", **envelope, "routingSlip": slip}
    return json.dumps({"envelope": head, "type": "order.v1", "payload": payload})


@pytest.mark.parametrize("decentralised", [False, True])
@pytest.mark.parametrize("topic", [ROUTER, default_topic("a")])
@pytest.mark.parametrize("what", HOSTILE)
@in_loop
async def test_a_slip_that_makes_no_sense_is_one_dead_letter(
    memory_bus: OpenBus, what: str, topic: str, decentralised: bool
) -> None:
    settings = fast(decentralised=decentralised)
    async with memory_bus() as bus, lab(bus, table("a"), worker(), settings=settings) as made:
        await bus.publish(topic, event(HOSTILE[what]))
        await made.until(lambda: len(made.dead) > 0 or "completed" in made.kinds())
        # What comes after it is not kept waiting, and it does not come again.
        await made.submit(correlation_id="c-2")
        await made.ended("c-2")
    if topic == ROUTER or made.dead:
        assert len(made.dead) == 1
        assert made.dead[0]["error"]["code"]
        assert "completed" not in made.kinds()


@in_loop
async def test_what_nests_too_deep_is_a_dead_letter(memory_bus: OpenBus) -> None:
    async with memory_bus() as bus, lab(bus, table("a"), worker()) as made:
        for depth in (300, 900, 930, 950, 970, 990):
            text = event([FIRST, pending()], payload=0).replace(
                '"payload": 0', f'"payload": {"[" * depth}{"]" * depth}'
            )
            await bus.publish(ROUTER, text)
        await made.until(lambda: len(made.dead) == 6)


@in_loop
async def test_a_reply_that_goes_nowhere_is_a_dead_letter(memory_bus: OpenBus) -> None:
    async with memory_bus() as bus, lab(bus, table("a"), worker()) as made:
        await bus.publish(ROUTER, event([FIRST, pending()], payload={"reply": 1}, replyTo="no topic!"))
        await made.until(lambda: len(made.dead) > 0)


class Narrow:
    """A bus that takes no more than so many bytes."""

    def __init__(self, bus: Any, limit: int) -> None:
        self._bus = bus
        self._limit = limit

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._bus, name)
        if name not in {"send", "publish"}:
            return real

        async def post(topic: str, data: bytes, *args: Any, **kwargs: Any) -> Any:
            if len(data) > self._limit:
                raise InvalidArgument(f"{len(data)} bytes are too many")
            return await real(topic, data, *args, **kwargs)

        return post


@pytest.mark.parametrize("size", [1_000, 9_000, 9_700, 9_900, 20_000])
@in_loop
async def test_what_is_too_large_for_the_engine_ends(memory_bus: OpenBus, size: int) -> None:
    made = worker()

    @made.step("grow")
    async def grow(work: Work) -> None:
        work.payload["reply"] = "x" * size
        work.itinerary.skip("never", "y" * size)

    async with memory_bus() as bus:
        narrow: Any = Narrow(bus, 10_000)
        async with lab(narrow, table("a", "grow", "never", "a2"), made) as lab_:
            a2 = Worker()

            @a2.step("a2")
            async def rest(work: Work) -> None:
                work.payload["reply"] += "z" * 200

            async with a2.running(narrow, lab_.store, lab_.settings):
                await lab_.submit(correlation_id="c-2")
                await lab_.submit()
                await lab_.until(lambda: len(lab_.dead) + len(lab_.delivered) == 2)
                ends = [await lab_.ended(), await lab_.ended("c-2")]
    assert {end.kind for end in ends} == ({"completed"} if size == 1_000 else {"dead-lettered"})


@in_loop
async def test_a_signal_that_is_none_is_a_dead_letter(memory_bus: OpenBus) -> None:
    async with memory_bus() as bus, lab(bus, table("a"), worker()) as made:
        for depth in (300, 930, 970, 990, 2000):
            word = '{"type":"signal","correlationId":"c-1","step":"a","data":' + "[" * depth + "]" * depth + "}"
            await bus.publish(SIGNALS, word)
        await bus.publish(SIGNALS, b"\xff")
        await bus.publish(PROGRESS, "[" * 2000 + "]" * 2000)
        await made.until(lambda: len(made.dead) == 6)


@in_loop
async def test_what_a_worker_cannot_follow_and_the_router_would_not_be_sent_is_a_dead_letter(
    memory_bus: OpenBus,
) -> None:
    """It has just fitted on its way to the worker."""
    async with memory_bus() as bus:
        narrow: Any = Narrow(bus, 10_000)
        async with lab(narrow, table("a"), worker()) as lab_:
            await bus.publish("internal.a.v1", b"{" * 10_001)
            await lab_.until(lambda: bool(lab_.dead))
    (letter,) = lab_.dead
    assert letter["error"]["code"] == "unsendable"
    assert letter["topic"] == "internal.a.v1"
