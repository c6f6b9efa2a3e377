"""A service in another language, which knows the seed's contract and nothing else: JSON in, JSON out."""

from __future__ import annotations

import asyncio
import datetime as dt
import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest

from slipstream.bus import Bus, Message
from slipstream.bus.opening import Opening
from slipstream.slip import Control, StepFailed, Work, Worker
from slipstream.slip.lookup import look_up
from slipstream.slip.topics import INGRESS, ROUTER
from tests.client.loop import in_loop
from tests.slip.lab import fast, lab, table

OpenBus = Callable[[], Opening]

NEW = {
    "envelope": {"v": "1", "source": "ingress.twitch", "correlationId": "c-1", "traceId": "t-abc"},
    "type": "order.v1",
    "payload": {"text": "!hello"},
}


async def serve(bus: Bus, step_id: str, *outcomes: dict[str, Any], times: int = 1) -> list[dict[str, Any]]:
    """Each time it is asked, the next outcome; the last again and again."""
    asked: list[dict[str, Any]] = []

    async def work(message: Message) -> None:
        event = json.loads(message.data)
        (step,) = [one for one in event["envelope"]["routingSlip"] if one["id"] == step_id]
        asked.append(dict(step))
        step |= {"endedAt": "2099-01-01T00:00:00.000Z"} | outcomes[min(len(asked), len(outcomes)) - 1]
        event["payload"]["reply"] = f"from {step_id}"
        for _ in range(times):
            await bus.publish(ROUTER, json.dumps(event))

    await bus.subscribe(f"internal.{step_id}.v1", "elsewhere", work)
    return asked


def ours() -> Worker:
    worker = Worker()

    @worker.step("ship")
    async def ship(work: Work) -> None:
        """Does nothing, well."""

    return worker


@in_loop
async def test_a_step_done_elsewhere_is_seen_like_any_other(any_bus: OpenBus) -> None:
    async with any_bus() as bus, lab(bus, table("bot", "ship"), ours()) as seen:
        asked = await serve(bus, "bot", {"status": "OK", "notes": "anything: {not json"})
        await bus.publish(INGRESS, json.dumps(NEW))
        await seen.ended()
        await seen.until(lambda: bool(seen.delivered))
        await seen.until(lambda: len(seen.kinds()) == 5)
    assert asked[0]["status"] == "PENDING"
    assert seen.delivered[0]["payload"]["reply"] == "from bot"
    assert seen.delivered[0]["envelope"]["traceId"] == "t-abc"
    assert set(seen.kinds()) == {"planned", "finished bot", "started ship", "finished ship", "completed"}


@in_loop
async def test_the_first_outcome_from_elsewhere_counts(memory_bus: OpenBus) -> None:
    async with memory_bus() as bus, lab(bus, table("bot", "ship"), ours()) as seen:
        await serve(bus, "bot", {"status": "OK"}, times=3)
        await bus.publish(INGRESS, json.dumps(NEW))
        await seen.ended()
        await seen.until(lambda: bool(seen.delivered))
    assert seen.kinds().count("finished ship") == 1
    assert len(seen.delivered) == 1


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        ({"status": "ERROR"}, "unknown"),
        ({"status": "ERROR", "error": {"code": "broken"}}, "broken"),
        ({"status": "ERROR", "error": {"code": "busy", "retryable": True}}, "busy"),
    ],
)
@in_loop
async def test_a_failure_elsewhere_is_a_dead_letter_after_its_attempts(
    memory_bus: OpenBus, outcome: dict[str, Any], code: str
) -> None:
    async with memory_bus() as bus, lab(bus, table("bot", "ship"), ours()) as seen:
        asked = await serve(bus, "bot", outcome)
        await bus.publish(INGRESS, json.dumps(NEW))
        await seen.ended()
        await seen.until(lambda: bool(seen.dead))
    assert seen.dead[0]["error"]["code"] == code
    tries = 3 if code == "busy" else 1
    assert [one.get("attempt") for one in asked] == list(range(tries))
    retried = {one.attempt for one in seen.progress if (one.kind, one.step) == ("retried", "bot")}
    assert retried == set(range(tries - 1))
    assert seen.kinds().count("failed bot") == 1


@in_loop
async def test_an_attempt_elsewhere_that_succeeds_has_no_error_of_the_one_before(memory_bus: OpenBus) -> None:
    busy = {"status": "ERROR", "error": {"code": "busy", "retryable": True}}
    async with memory_bus() as bus, lab(bus, table("bot", "nod", "ship"), ours()) as seen:
        asked = await serve(bus, "bot", busy, {"status": "OK"})
        await serve(bus, "nod", busy, {"status": "SKIP", "notes": "nothing to do"})
        await bus.publish(INGRESS, json.dumps(NEW))
        assert (await seen.ended()).kind == "completed"
        await seen.until(lambda: bool(seen.delivered))
    assert asked[1]["error"]["code"] == "busy"
    bot, nod = seen.delivered[0]["envelope"]["routingSlip"][1:3]
    assert "error" not in bot
    assert "error" not in nod
    assert [one.error for one in seen.progress if (one.kind, one.step) == ("finished", "bot")] == [None]
    assert "failed nod" not in seen.kinds()


@in_loop
async def test_another_attempt_elsewhere_comes_after_its_pause(memory_bus: OpenBus) -> None:
    settings = fast(retry_base_ms=150)
    came: list[float] = []
    async with memory_bus() as bus, lab(bus, table("bot", "ship"), ours(), settings=settings) as seen:
        busy = {"status": "ERROR", "error": {"code": "busy", "retryable": True}}
        asked = await serve(bus, "bot", busy, {"status": "OK"})

        async def watch(message: Message) -> None:
            came.append(message.published_at.timestamp())

        await bus.subscribe("internal.bot.v1", "watch", watch)
        await bus.publish(INGRESS, json.dumps(NEW))
        assert (await seen.ended()).kind == "completed"
        await seen.until(lambda: len(came) > 1)
    assert [one["attempt"] for one in asked] == [0, 1]
    assert came[1] - came[0] >= 0.14
    retried = [one for one in seen.progress if (one.kind, one.step) == ("retried", "bot")]
    assert {(one.attempt, one.duration_ms) for one in retried} == {(0, retried[0].duration_ms)}


@in_loop
async def test_a_message_can_be_run_again_from_where_another_service_left_it(memory_bus: OpenBus) -> None:
    async with memory_bus() as bus, lab(bus, table("bot", "nobody")) as seen:
        await serve(bus, "bot", {"status": "OK"})
        await bus.publish(INGRESS, json.dumps(NEW))
        await seen.told("finished bot")
        await Control(seen.store, seen.settings).rerun("c-1", "nobody")
        await seen.told("rerun")
        known = await look_up(seen.store, "c-1")
    assert known is not None
    assert {step.id: step.status for step in known.newest[0].envelope.routing_slip}["bot"] == "OK"


@in_loop
async def test_an_optional_step_that_fails_elsewhere_is_skipped(memory_bus: OpenBus) -> None:
    route = table({"id": "bot", "optional": True}, "ship")
    async with memory_bus() as bus, lab(bus, route, ours()) as seen:
        await serve(bus, "bot", {"status": "ERROR", "error": {"code": "broken"}})
        await bus.publish(INGRESS, json.dumps(NEW))
        assert (await seen.ended()).kind == "completed"
        await seen.until(lambda: bool(seen.delivered))
    bot = next(step for step in seen.delivered[0]["envelope"]["routingSlip"] if step["id"] == "bot")
    assert (bot["status"], bot["error"]["code"]) == ("SKIP", "broken")
    assert seen.kinds().count("failed bot") == seen.kinds().count("skipped bot") == 1


@in_loop
async def test_a_message_that_begins_at_the_router_is_timed_out_as_well(memory_bus: OpenBus) -> None:
    """Its slip was made elsewhere, and nobody does its step."""
    soon = (dt.datetime.now(dt.UTC) + dt.timedelta(seconds=0.3)).isoformat()
    slip = [{"id": "intake", "status": "OK", "startedAt": soon}, {"id": "nobody", "status": "PENDING"}]
    async with memory_bus() as bus, lab(bus, table("ship")) as seen:
        envelope = {"v": "1", "source": "elsewhere", "correlationId": "c-1", "timeoutAt": soon, "routingSlip": slip}
        await bus.publish(ROUTER, json.dumps(NEW | {"envelope": envelope}))
        await seen.ended()
        await seen.until(lambda: bool(seen.dead))
    (letter,) = seen.dead
    assert letter["error"]["code"] == "message_timeout"


# What comes back may be anything


def senseless(message: Message) -> bytes:
    event = json.loads(message.data)
    event["envelope"]["routingSlip"][-1]["nextTopic"] = "no topic at all"
    return json.dumps(event).encode()


def cut_off(message: Message) -> bytes:
    return message.data[:-1]


def shortened(message: Message) -> bytes:
    event = json.loads(message.data)
    del event["envelope"]["routingSlip"][-1]
    event["envelope"]["routingSlip"][-1]["status"] = "OK"
    return json.dumps(event).encode()


def unanswered(message: Message) -> bytes:
    return message.data


def emptied(message: Message) -> bytes:
    event = json.loads(message.data)
    del event["envelope"]["routingSlip"][1:]
    return json.dumps(event).encode()


async def serve_garbled(
    bus: Bus, topic: str, garble: Callable[[Message], bytes], *, times: int = 1, to: str = ROUTER
) -> None:
    async def work(message: Message) -> None:
        for _ in range(times):
            await bus.publish(to, garble(message), {"correlationId": message.correlation_id}, message.key)

    await bus.subscribe(topic, "elsewhere", work)


def paying() -> tuple[Worker, list[str]]:
    worker, done = ours(), []

    @worker.step("pay")
    async def pay(work: Work) -> None:
        work.undo_with("R-17")
        done.append("paid")

    @worker.undo("pay")
    async def refund(work: Work) -> None:
        done.append(f"refunded {work.record}")

    return worker, done


@pytest.mark.parametrize(
    ("garble", "why"), [(shortened, "ship"), (emptied, "pay, bot, ship"), (unanswered, "bot is still PENDING")]
)
@in_loop
async def test_a_slip_that_comes_back_and_is_no_answer_fails_its_step(
    memory_bus: OpenBus, garble: Callable[[Message], bytes], why: str
) -> None:
    worker, done = paying()
    async with memory_bus() as bus, lab(bus, table("pay", "bot", "ship"), worker) as seen:
        await serve_garbled(bus, "internal.bot.v1", garble)
        await seen.submit()
        assert (await seen.ended()).kind == "dead-lettered"
        await seen.until(lambda: len(seen.dead) > 1)
    (letter,) = [letter for letter in seen.dead if "envelope" in letter]
    assert (letter["error"]["code"], letter["lastStep"]["id"]) == ("malformed", "bot")
    assert why in letter["error"]["message"]
    assert done == ["paid", "refunded R-17"]


@in_loop
async def test_a_branch_that_comes_back_garbled_from_its_first_step_has_failed(memory_bus: OpenBus) -> None:
    route = table({"id": "look", "parallel": {"bot": ["bot"], "ship": ["ship"]}})
    async with memory_bus() as bus, lab(bus, route, ours()) as seen:
        await serve_garbled(bus, "internal.bot.v1", cut_off)
        await seen.submit()
        async with asyncio.timeout(10):
            assert (await seen.ended()).kind == "dead-lettered"
            await seen.until(lambda: len(seen.dead) > 1)
    (letter,) = [letter for letter in seen.dead if "envelope" in letter]
    assert letter["error"]["code"] == "join_failed"


@in_loop
async def test_a_slip_made_elsewhere_is_timed_out_also_before_its_first_step(memory_bus: OpenBus) -> None:
    soon = (dt.datetime.now(dt.UTC) + dt.timedelta(seconds=0.3)).isoformat()
    async with memory_bus() as bus, lab(bus, table("ship")) as seen:
        slip = [{"id": "nobody", "status": "PENDING"}]
        envelope = {"v": "1", "source": "elsewhere", "correlationId": "c-1", "timeoutAt": soon, "routingSlip": slip}
        await bus.publish(ROUTER, json.dumps(NEW | {"envelope": envelope}))
        async with asyncio.timeout(10):
            await seen.ended()
            await seen.until(lambda: bool(seen.dead))
    assert [letter["error"]["code"] for letter in seen.dead] == ["message_timeout"]


@pytest.mark.parametrize("timeout", [None, 2.0])
@in_loop
async def test_what_comes_back_garbled_fails_its_step_and_the_message_ends_once(
    memory_bus: OpenBus, timeout: float | None
) -> None:
    """All of them at once: each has a bus of its own, and waits until its time would be over."""
    cases = itertools.product((senseless, cut_off), (ROUTER, "internal.ship.v1"))
    await asyncio.gather(*(_ends_once(memory_bus, garble, timeout, to) for garble, to in cases))


async def _ends_once(memory_bus: OpenBus, garble: Callable[[Message], bytes], timeout: float | None, to: str) -> None:
    worker, done = paying()
    async with memory_bus() as bus, lab(bus, table("pay", "bot", "ship"), worker) as seen:
        await serve_garbled(bus, "internal.bot.v1", garble, times=2, to=to)
        await seen.submit(timeout=timeout)
        assert (await seen.ended()).kind == "dead-lettered"
        await seen.until(lambda: len(seen.dead) >= 3)
        if timeout is not None:
            await asyncio.sleep(timeout)  # that nothing comes of it can only be waited for
    of_message = [letter for letter in seen.dead if "envelope" in letter]
    (letter,) = of_message
    assert (letter["error"]["code"], letter["lastStep"]["id"]) == ("malformed", "bot")
    assert letter["compensation"] == {"undone": ["pay"], "failed": []}
    assert done == ["paid", "refunded R-17"]
    bytes_of = [letter for letter in seen.dead if "envelope" not in letter]
    assert {letter["topic"] for letter in bytes_of} == {to}
    assert len(bytes_of) == 2
    assert seen.kinds().count("dead-lettered bot") == 1


@pytest.mark.parametrize("garble", [senseless, cut_off])
@in_loop
async def test_what_comes_back_garbled_from_an_optional_step_is_done_without(
    memory_bus: OpenBus, garble: Callable[[Message], bytes]
) -> None:
    async with memory_bus() as bus, lab(bus, table({"id": "bot", "optional": True}, "ship"), ours()) as seen:
        await serve_garbled(bus, "internal.bot.v1", garble)
        await seen.submit(payload={"reply": 1})
        assert (await seen.ended()).kind == "completed"
        await seen.until(lambda: bool(seen.delivered))
    assert [letter["error"]["code"] for letter in seen.dead] == ["malformed"]


@in_loop
async def test_an_undoing_that_comes_back_garbled_has_failed_and_the_others_go_on(memory_bus: OpenBus) -> None:
    worker, done = paying()

    @worker.step("reserve")
    async def reserve(work: Work) -> None:
        work.undo_with(1)

    @worker.step("break")
    async def fail(work: Work) -> None:
        raise StepFailed("broken")

    async with (
        memory_bus() as bus,
        lab(bus, table("pay", "reserve", "break"), worker, settings=fast(max_attempts=1)) as seen,
    ):
        await serve_garbled(bus, "internal.reserve.undo.v1", cut_off)
        await seen.submit()
        await seen.ended()
        await seen.until(lambda: len(seen.dead) > 1)
    (letter,) = [letter for letter in seen.dead if "envelope" in letter]
    assert letter["compensation"] == {"undone": ["pay"], "failed": ["reserve"]}
    assert letter["error"]["code"] == "broken"
    assert done == ["paid", "refunded R-17"]


@in_loop
async def test_something_garbled_does_not_harm_a_message_that_waits_for_a_person(memory_bus: OpenBus) -> None:
    route = table({"id": "manager", "wait": "approval"}, "ship")
    async with memory_bus() as bus, lab(bus, route, ours()) as seen:
        await seen.submit(payload={"reply": 1})
        await seen.told("waiting manager")
        await bus.publish(ROUTER, b"{", {"correlationId": "c-1"})
        await seen.until(lambda: bool(seen.dead))
        await Control(seen.store, seen.settings).approve("c-1", "manager")
        assert (await seen.ended()).kind == "completed"


@in_loop
async def test_something_garbled_does_not_put_off_a_deadline(memory_bus: OpenBus) -> None:
    route = table({"id": "manager", "wait": "approval", "deadline": "300ms", "on_deadline": "go on"})
    async with memory_bus() as bus, lab(bus, route) as seen:
        await seen.submit()
        await seen.told("waiting manager")
        async with asyncio.timeout(10):
            while "completed" not in seen.kinds():
                await bus.publish(ROUTER, b"{", {"correlationId": "c-1"})
                await asyncio.sleep(0.05)
