"""The router, with workers that do what they should: what is planned, sent on, completed, and what cannot be."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slipstream.bus.opening import Opening
from slipstream.slip import (
    Envelope,
    Event,
    Itinerary,
    Reject,
    Router,
    RouteTable,
    RoutingStep,
    Status,
    StepError,
    Work,
    Worker,
    encode,
    open_store,
)
from slipstream.slip.routes import WatchedRoutes
from slipstream.slip.topics import INGRESS, ROUTER
from tests.client.loop import in_loop
from tests.slip.lab import fast, lab, summary, table

OpenBus = Callable[[], Opening]

CHAT = RouteTable.of(
    {
        "routes": {
            "chat.message.v1": {
                "steps": [
                    "router",
                    {"id": "intent-detection", "when": {"var": "payload.intents"}},
                    {"id": "retrieval", "when": {"var": "payload.userId"}, "topic": "internal.retrieval.v1"},
                    {"id": "llm-bot", "topic": "internal.bot.requests.v1"},
                    {"id": "formatter", "topic": "internal.formatter.v1"},
                    {"id": "egress", "topic": "internal.egress.v1"},
                ]
            }
        }
    }
)


def chat_worker() -> Worker:
    worker = Worker()

    @worker.step("retrieval")
    async def retrieval(work: Work) -> None:
        work.payload["documents"] = ["greetings"]

    @worker.step("llm-bot", topic="internal.bot.requests.v1")
    async def llm_bot(work: Work) -> dict[str, Any]:
        return {"reply": f"{work.payload['documents'][0]} to {work.payload['userId']}"}

    @worker.step("formatter")
    def formatter(work: Work) -> None:
        work.payload["reply"] = work.payload["reply"].capitalize()

    @worker.step("egress")
    async def egress(work: Work) -> None:
        pass

    return worker


def obedient(*step_ids: str) -> Worker:
    """Notes in the payload which step was done."""
    worker = Worker()
    for step_id in step_ids:

        @worker.step(step_id)
        async def do(work: Work) -> None:
            work.payload.setdefault("done", []).append(work.step.id)

    return worker


# The seed's example


@in_loop
async def test_the_seeds_example_from_end_to_end_on_every_engine(any_bus: OpenBus) -> None:
    payload = {"channel": "#bitbrat", "text": "!hello", "userId": "u-77"}
    async with any_bus() as bus, lab(bus, CHAT, chat_worker()) as made:
        event = Event(Envelope("1", "ingress.twitch", "c-123", trace_id="t-abc"), "chat.message.v1", payload)
        await bus.publish(INGRESS, encode(event))
        end = await made.ended("c-123")
        await made.until(lambda: len(made.delivered) > 0)
        await made.until(lambda: len(made.kinds("c-123")) == 10)
        kinds = made.kinds("c-123")
    assert end.kind == "completed"
    (delivered,) = made.delivered
    assert delivered["type"] == "egress.deliver.v1"
    assert delivered["payload"] == {**payload, "documents": ["greetings"], "reply": "Greetings to u-77"}
    envelope = delivered["envelope"]
    assert {name: envelope[name] for name in ("v", "source", "correlationId", "traceId")} == {
        "v": "1",
        "source": "ingress.twitch",
        "correlationId": "c-123",
        "traceId": "t-abc",
    }
    slip = envelope["routingSlip"]
    assert [(step["id"], step["status"], step.get("nextTopic")) for step in slip] == [
        ("router", "OK", None),
        ("retrieval", "OK", "internal.retrieval.v1"),
        ("llm-bot", "OK", "internal.bot.requests.v1"),
        ("formatter", "OK", "internal.formatter.v1"),
        ("egress", "OK", "internal.egress.v1"),
    ]
    times = [(step["startedAt"], step["endedAt"]) for step in slip]
    assert times == sorted(times)
    assert made.dead == []
    steps = ("retrieval", "llm-bot", "formatter", "egress")
    assert kinds == ["planned", *(f"{kind} {step}" for step in steps for kind in ("started", "finished")), "completed"]


@in_loop
async def test_a_worker_sends_it_straight_on_where_there_is_no_router_between(any_bus: OpenBus) -> None:
    """Decentralised: the router sees a message when it begins and when it ends."""
    async with any_bus() as bus:
        seen: list[str] = []

        async def tap(message: Any) -> None:
            seen.append(message.topic)

        await bus.subscribe(ROUTER, "test", tap)
        payload = {"text": "!hello", "userId": "u-77"}
        async with lab(bus, CHAT, chat_worker(), settings=fast(decentralised=True)) as made:
            await made.submit("chat.message.v1", payload)
            assert (await made.ended()).kind == "completed"
            await made.until(lambda: len(made.delivered) > 0)
        while not seen:
            await asyncio.sleep(0.01)
    assert seen == [ROUTER]
    assert made.delivered[0]["payload"]["reply"] == "Greetings to u-77"


# Planning


@in_loop
async def test_what_no_route_knows_is_a_dead_letter_and_the_router_goes_on(memory_bus: OpenBus) -> None:
    async with memory_bus() as bus, lab(bus, table("pack"), obedient("pack")) as made:
        await made.submit("mystery.v1", {"a": 1}, correlation_id="c-0")
        await made.submit()
        await made.ended()
        await made.until(lambda: len(made.dead) > 0)
    (letter,) = made.dead
    assert letter["type"] == "internal.deadletter.v1"
    assert letter["error"]["code"] == "no_route"
    assert "mystery.v1" in letter["error"]["message"]
    assert letter["envelope"]["correlationId"] == "c-0"
    assert (letter["eventType"], letter["payload"]) == ("mystery.v1", {"a": 1})


@in_loop
async def test_what_has_no_route_can_be_sent_again_when_there_is_one(memory_bus: OpenBus) -> None:
    async with memory_bus() as bus, open_store(":memory:") as store:
        async with lab(bus, table("pack", event_type="other.v1"), store=store) as made:
            await made.submit()
            await made.until(lambda: len(made.dead) > 0)
        async with lab(bus, table("pack"), obedient("pack"), store=store) as made:
            await made.submit()
            await made.told("completed")


@pytest.mark.parametrize("data", [b"\xff\x00", b"[]", b'{"envelope": {}}', b"{" * 100_000])
@in_loop
async def test_what_is_no_event_is_a_dead_letter_with_its_bytes(memory_bus: OpenBus, data: bytes) -> None:
    async with memory_bus() as bus, lab(bus, table("pack"), obedient("pack")) as made:
        for topic in (INGRESS, ROUTER, "internal.pack.v1"):
            await bus.publish(topic, data)
        await made.submit()
        await made.ended()
        await made.until(lambda: len(made.dead) == 3)
    assert {letter["error"]["code"] for letter in made.dead} == {"malformed"}
    assert {letter["topic"] for letter in made.dead} == {INGRESS, ROUTER, "internal.pack.v1"}
    assert [letter.get("encoding", "") for letter in made.dead] == ["base64" if data[0] == 255 else ""] * 3


@in_loop
async def test_an_event_may_bring_its_own_slip(memory_bus: OpenBus) -> None:
    slip = (RoutingStep("b", Status.PENDING), RoutingStep("a", Status.PENDING))
    async with memory_bus() as bus, lab(bus, table("a"), obedient("a", "b")) as made:
        event = Event(Envelope("1", "test", "c-1", routing_slip=slip), "unplanned.v1", {"reply": "x"})
        await bus.publish(INGRESS, encode(event))
        await made.until(lambda: len(made.delivered) > 0)
    assert made.delivered[0]["payload"]["done"] == ["b", "a"]


@in_loop
async def test_the_same_event_submitted_twice_is_routed_once(memory_bus: OpenBus) -> None:
    async with memory_bus() as bus, lab(bus, table("pack"), obedient("pack")) as made:
        event = encode(Event(Envelope("1", "test", "c-1"), "order.v1", {"reply": 1}))
        await bus.publish(INGRESS, event)
        await bus.publish(INGRESS, event)
        await made.ended()
        await made.submit(correlation_id="c-2")
        await made.ended("c-2")
    assert len(made.delivered) == 1
    assert made.kinds().count("completed") == 1
    assert made.kinds().count("started pack") == 1


@in_loop
async def test_another_event_with_the_same_correlation_id_is_refused(memory_bus: OpenBus) -> None:
    async with memory_bus() as bus, lab(bus, table("pack"), obedient("pack")) as made:
        for payload in ({"order": 1}, {"order": 2}):
            await bus.publish(INGRESS, encode(Event(Envelope("1", "test", "c-1"), "order.v1", payload)))
        await made.until(lambda: len(made.dead) > 0)
        assert (await made.ended()).kind == "completed"
    assert made.dead[0]["error"]["code"] == "correlation_id_reused"
    assert made.dead[0]["payload"] in ({"order": 1}, {"order": 2})


@in_loop
async def test_a_planner_changes_what_lies_ahead(memory_bus: OpenBus) -> None:
    router = Router(table("a", "b", "c"))

    @router.planner("order.*")
    def change(event: Event, itinerary: Itinerary) -> None:
        ids = [step.id for step in itinerary.steps]
        if "extra" not in ids:
            itinerary.insert(RoutingStep("extra", Status.PENDING), before="b")
        if event.payload.get("done") == ["a"]:
            itinerary.reorder("c", "extra")
            itinerary.skip("b", "not needed")

    async with memory_bus() as bus, lab(bus, router, obedient("a", "b", "c", "extra")) as made:
        await made.submit(payload={"reply": 1})
        await made.ended()
        await made.until(lambda: len(made.delivered) > 0)
    assert made.delivered[0]["payload"]["done"] == ["a", "c", "extra"]
    assert "started b" not in made.kinds()
    (skipped,) = [one for one in made.progress if one.kind == "skipped"]
    assert (skipped.step, skipped.detail) == ("b", "not needed")


@in_loop
async def test_what_is_taken_off_the_itinerary_is_told(memory_bus: OpenBus) -> None:
    router, worker = Router(table("a", "b", "c", "d")), obedient("b", "c", "d")

    @router.planner("order.v1")
    def plan(event: Event, itinerary: Itinerary) -> None:
        itinerary.skip("c", "said the planner")  # each time it is asked

    @worker.step("a")
    async def take_off(work: Work) -> None:
        work.itinerary.skip("b", "said the worker")

    async with memory_bus() as bus, lab(bus, router, worker) as made:
        await made.submit()
        await made.ended()
    told = [(one.step, one.detail) for one in made.progress if one.kind == "skipped"]
    assert told == [("c", "said the planner"), ("b", "said the worker")]


@in_loop
async def test_a_planner_that_fails_makes_a_dead_letter(memory_bus: OpenBus) -> None:
    router = Router(table("a", "b"))

    @router.planner("order.v1")
    async def fail(event: Event, itinerary: Itinerary) -> None:
        if event.payload.get("done"):
            itinerary.skip("a")

    async with memory_bus() as bus, lab(bus, router, obedient("a", "b")) as made:
        await made.submit()
        assert (await made.ended()).kind == "dead-lettered"
        await made.until(lambda: len(made.dead) > 0)
    assert made.dead[0]["error"]["code"] == "planning_failed"
    assert "a does not lie ahead any more" in made.dead[0]["error"]["message"]
    assert summary(made.dead[0]) == {"router": "OK", "a": "OK", "b": "ERROR"}


@in_loop
async def test_a_changed_file_is_the_table_as_soon_as_the_settings_say(memory_bus: OpenBus, tmp_path: Path) -> None:
    file = tmp_path / "routes.toml"
    file.write_text('routes = { "order.v1" = { steps = ["a"] } }')
    router = Router(file)
    async with memory_bus() as bus, lab(bus, router, obedient("a", "b"), settings=fast(poll_ms=10)) as made:
        await made.submit()
        await made.ended()
        file.write_text('routes = { "order.v1" = { steps = ["a", "b"] } }')
        async with asyncio.timeout(30):
            while router.table.plan(Event(Envelope("1", "test", "c-2"), "order.v1"))[-1].id != "b":
                await asyncio.sleep(0.005)
        assert isinstance(router.routes, WatchedRoutes)
        assert router.routes.interval_s == 0.01, "it is looked at once a second, whatever SLIP_POLL_MS says"
        await made.submit(correlation_id="c-2")
        await made.ended("c-2")
    assert "finished b" in made.kinds("c-2")


@in_loop
async def test_a_step_is_skipped_when_the_slip_gets_there(memory_bus: OpenBus) -> None:
    unless = {"in": ["a", {"var": "payload.done"}]}
    async with memory_bus() as bus, lab(bus, table("a", {"id": "b", "unless": unless}, "c"), obedient(*"abc")) as made:
        await made.submit(payload={"reply": 1})
        await made.ended()
        await made.until(lambda: len(made.delivered) > 0)
    assert made.delivered[0]["payload"]["done"] == ["a", "c"]
    (skipped,) = [one for one in made.progress if one.kind == "skipped"]
    assert (skipped.step, skipped.detail) == ("b", "its unless holds")


# Failing


@in_loop
async def test_a_step_that_fails_for_good_makes_a_dead_letter(memory_bus: OpenBus) -> None:
    worker = obedient("a", "c")

    @worker.step("b")
    async def refuse(work: Work) -> None:
        work.payload["half"] = "done"
        raise Reject("no such customer")

    async with memory_bus() as bus, lab(bus, table("a", "b", "c"), worker) as made:
        await made.submit(payload={"order": 1})
        end = await made.ended()
        await made.until(lambda: len(made.dead) > 0)
    assert end.kind == "dead-lettered"
    assert end.error == StepError("rejected", "no such customer", retryable=False)
    (letter,) = made.dead
    assert letter["lastStep"]["id"] == "b"
    assert letter["lastStep"]["status"] == "ERROR"
    assert letter["error"] == {"code": "rejected", "message": "no such customer", "retryable": False}
    assert summary(letter) == {"router": "OK", "a": "OK", "b": "ERROR", "c": "SKIP"}
    assert letter["payload"] == {"order": 1, "done": ["a"]}
    assert made.delivered == []


@in_loop
async def test_an_optional_step_that_fails_is_skipped(memory_bus: OpenBus) -> None:
    worker = obedient("a", "c")

    @worker.step("b")
    async def refuse(work: Work) -> None:
        raise Reject("not today")

    async with memory_bus() as bus, lab(bus, table("a", {"id": "b", "optional": True}, "c"), worker) as made:
        await made.submit(payload={"reply": 1})
        assert (await made.ended()).kind == "completed"
        await made.until(lambda: len(made.delivered) > 0)
    assert made.delivered[0]["payload"]["done"] == ["a", "c"]
    (b,) = [step for step in made.delivered[0]["envelope"]["routingSlip"] if step["id"] == "b"]
    assert (b["status"], b["error"]["message"]) == ("SKIP", "not today")


@in_loop
async def test_a_worker_may_leave_the_retry_to_the_router(memory_bus: OpenBus) -> None:
    """One that is not ours may say ERROR and retryable, and leave it at that."""
    async with memory_bus() as bus, lab(bus, table("a"), obedient("a")) as made:
        error = StepError("busy", retryable=True)
        failed = RoutingStep("a", Status.ERROR, attempt=0, max_attempts=3, error=error)
        event = Event(Envelope("1", "test", "c-1", routing_slip=(failed,)), "order.v1", {"reply": 1})
        await bus.publish(ROUTER, encode(event))
        await made.until(lambda: len(made.delivered) > 0)
    (step,) = made.delivered[0]["envelope"]["routingSlip"]
    assert (step["status"], step["attempt"]) == ("OK", 1)


# Delivering


@in_loop
async def test_the_artefact_goes_to_reply_to(memory_bus: OpenBus) -> None:
    replies: list[Any] = []
    async with memory_bus() as bus, lab(bus, table("a"), obedient("a")) as made:
        came = asyncio.Event()

        async def take(message: Any) -> None:
            replies.append(message.json())
            came.set()

        await bus.subscribe("replies.mine", "test", take)
        await made.submit(payload={"reply": "hi"}, reply_to="replies.mine")
        await came.wait()
        await made.ended()
    assert replies[0]["payload"]["reply"] == "hi"
    assert made.delivered == []


@pytest.mark.parametrize("payload", [{"text": "nothing to deliver"}, {"reply": None}, ["reply"], "reply", None])
@in_loop
async def test_without_an_artefact_nothing_is_delivered(memory_bus: OpenBus, payload: Any) -> None:
    worker = Worker()

    @worker.step("a")
    async def do(work: Work) -> None:
        pass

    async with memory_bus() as bus, lab(bus, table("a"), worker) as made:
        event = Event(Envelope("1", "test", "c-1"), "order.v1", payload)
        await bus.publish(INGRESS, encode(event))
        assert (await made.ended()).kind == "completed"
    assert made.delivered == []


@in_loop
async def test_what_a_step_has_delivered_the_router_does_not(memory_bus: OpenBus) -> None:
    worker = Worker()

    @worker.step("a")
    async def deliver(work: Work) -> None:
        work.delivered()

    async with memory_bus() as bus, lab(bus, table("a"), worker) as made:
        await made.submit(payload={"reply": 1})
        await made.ended()
    assert made.delivered == []


# Time-outs


@in_loop
async def test_a_message_whose_time_is_over_is_a_dead_letter_though_nobody_works_at_it(memory_bus: OpenBus) -> None:
    async with memory_bus() as bus, lab(bus, table("a", "nobody", "c"), obedient("a", "c")) as made:
        await made.submit(timeout=1)
        end = await made.ended()
        await made.until(lambda: len(made.dead) > 0)
    assert end.kind == "dead-lettered"
    (letter,) = made.dead
    assert letter["error"]["code"] == "message_timeout"
    assert letter["lastStep"]["id"] == "nobody"
    assert summary(letter) == {"router": "OK", "a": "OK", "nobody": "SKIP", "c": "SKIP"}


@in_loop
async def test_a_step_that_ends_too_late_changes_nothing(memory_bus: OpenBus) -> None:
    worker, over = obedient("b"), asyncio.Event()

    @worker.step("a")
    async def slow(work: Work) -> None:
        await over.wait()

    async with memory_bus() as bus, lab(bus, table("a", "b"), worker) as made:
        await made.submit(payload={"reply": 1}, timeout=1)
        await made.ended()
        over.set()
        await made.told("finished a")
        await made.submit(correlation_id="c-2")
        await made.ended("c-2")
    assert made.kinds().count("dead-lettered a") == 1
    assert "completed" not in made.kinds()
    assert "started b" not in made.kinds()
    assert len(made.dead) == 1
    assert made.delivered == []


@in_loop
async def test_the_time_of_the_route_is_that_of_its_messages(memory_bus: OpenBus) -> None:
    before = dt.datetime.now(dt.UTC)
    async with memory_bus() as bus, lab(bus, table("a", timeout="1h"), obedient("a")) as made:
        await made.submit(payload={"reply": 1})
        await made.until(lambda: len(made.delivered) > 0)
    timeout_at = dt.datetime.fromisoformat(made.delivered[0]["envelope"]["timeoutAt"])
    assert dt.timedelta(minutes=59) < timeout_at - before < dt.timedelta(minutes=61)


# What comes twice


@in_loop
async def test_a_message_that_comes_again_while_it_is_undone_does_not_undo_it_as_well(memory_bus: OpenBus) -> None:
    """It would take the place of the undoing that is under way, and the message would never end."""
    worker, undone, may_go_on = Worker(), list[str](), asyncio.Event()
    for step_id in ("reserve", "charge"):

        @worker.step(step_id)
        async def do(work: Work) -> None:
            work.undo_with(work.step.id)

        @worker.undo(step_id)
        async def undo(work: Work) -> None:
            undone.append(work.record)
            if work.record == "charge":
                await may_go_on.wait()

    @worker.step("ship")
    async def ship(work: Work) -> None:
        raise Reject("no such address")

    returned: list[bytes] = []

    async def keep(message: Any) -> None:
        returned.append(message.data)

    async with memory_bus() as bus, lab(bus, table("reserve", "charge", "ship"), worker) as made:
        await bus.subscribe(ROUTER, "test", keep)
        await made.submit()
        await made.told("started undo:charge")
        await bus.publish(ROUTER, returned[0])  # as it came back from its first step: its router had not acked it
        await made.submit(correlation_id="c-2", payload={"other": 1})
        await made.told("started undo:charge", "c-2")
        may_go_on.set()
        assert (await made.ended()).kind == "dead-lettered"
        await made.ended("c-2")
        await made.until(lambda: len(made.dead) == 2)
    assert sorted(undone) == ["charge", "charge", "reserve", "reserve"]
    for letter in made.dead:
        assert letter["compensation"] == {"undone": ["charge", "reserve"], "failed": []}


@in_loop
async def test_the_end_of_a_message_is_told_though_it_was_refused_before(memory_bus: OpenBus) -> None:
    worker = Worker()

    @worker.step("ship")
    async def ship(work: Work) -> None:
        raise Reject("no address")

    router = Router(table("ship", event_type="other.v1"))
    async with memory_bus() as bus, lab(bus, router, worker) as made:
        await made.submit()
        await made.told("dead-lettered")
        router.routes = table("ship")
        await made.submit()
        async with asyncio.timeout(10):
            await made.told("dead-lettered ship")
    assert made.kinds().count("dead-lettered ship") == 1
