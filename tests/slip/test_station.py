"""A step at work: what it may say, how often it is tried, and that its work is done once."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from slipstream.bus.opening import Opening
from slipstream.slip import (
    Control,
    Envelope,
    Event,
    InvalidSlip,
    Pause,
    Reject,
    Retries,
    Retry,
    RoutingStep,
    Skip,
    Status,
    StepFailed,
    Work,
    Worker,
    encode,
    open_store,
)
from slipstream.slip.topics import ROUTER
from tests.bus.recorder import Recorder
from tests.client.loop import in_loop, until
from tests.slip.lab import fast, lab, summary, table

OpenBus = Callable[[], Opening]


def failing(error: Exception, times: int = 1) -> tuple[Worker, list[int]]:
    """A worker whose step `a` fails so often; and the attempts it has made."""
    worker, attempts = Worker(), list[int]()

    @worker.step("a")
    async def fail(work: Work) -> dict[str, Any]:
        attempts.append(work.attempt)
        if len(attempts) <= times:
            raise error
        return {"reply": "at last"}

    return worker, attempts


# Retries


@in_loop
async def test_a_step_that_fails_is_tried_again_on_every_engine(any_bus: OpenBus) -> None:
    worker, attempts = failing(RuntimeError("the bank is away"), times=2)
    async with any_bus() as bus, lab(bus, table("a"), worker) as made:
        await made.submit(payload={"order": 1})
        assert (await made.ended()).kind == "completed"
        await made.until(lambda: len(made.delivered) > 0)
        retried = [one for one in made.progress if one.kind == "retried"]
    assert attempts == [0, 1, 2]
    step = made.delivered[0]["envelope"]["routingSlip"][1]
    assert (step["status"], step["attempt"]) == ("OK", 2)
    assert "error" not in step
    assert "slip.notBefore" not in step.get("attributes", {})
    assert [(one.attempt, one.error.code if one.error else "") for one in retried] == [
        (0, "RuntimeError"),
        (1, "RuntimeError"),
    ]
    assert all(one.duration_ms is not None for one in retried)


@in_loop
async def test_after_the_last_attempt_it_has_failed_for_good(memory_bus: OpenBus) -> None:
    worker, attempts = failing(StepFailed("busy", "no lines free"), times=99)
    async with memory_bus() as bus, lab(bus, table({"id": "a", "max_attempts": 4}), worker) as made:
        await made.submit()
        await made.until(lambda: len(made.dead) > 0)
    assert attempts == [0, 1, 2, 3]
    assert made.dead[0]["error"] == {"code": "busy", "message": "no lines free", "retryable": False}
    assert made.dead[0]["lastStep"]["attempt"] == 3


@pytest.mark.parametrize("error", [Reject("never"), StepFailed("declined", "never", retryable=False)])
@in_loop
async def test_what_is_not_retryable_is_not_tried_again(memory_bus: OpenBus, error: Exception) -> None:
    worker, attempts = failing(error, times=99)
    async with memory_bus() as bus, lab(bus, table("a"), worker) as made:
        await made.submit()
        await made.until(lambda: len(made.dead) > 0)
    assert attempts == [0]
    assert made.dead[0]["error"]["message"] == "never"


@in_loop
async def test_the_pause_grows_and_a_step_may_say_its_own(memory_bus: OpenBus) -> None:
    """The times are those of the slip, before which nobody tries it again."""
    worker, _ = failing(Retry("come back", delay=0.05), times=1)
    async with memory_bus() as bus, lab(bus, table("a"), worker) as made:
        await made.submit()
        await made.ended()
        started = [one.at for one in made.progress if one.kind == "started"]
    assert (started[1] - started[0]).total_seconds() >= 0.045


def test_pauses_double_up_to_the_longest_with_a_part_by_chance() -> None:
    retries = Retries(base_ms=100, longest_ms=1_000)
    for attempt, pause in enumerate([100, 200, 400, 800, 1_000, 1_000]):
        drawn = [retries.pause_ms(attempt) for _ in range(200)]
        assert min(drawn) >= pause
        assert max(drawn) <= pause + 100
        assert len(set(drawn)) > 10
    assert retries.pause_ms(10_000) <= 1_100


@in_loop
async def test_an_attempt_that_takes_too_long_has_failed(memory_bus: OpenBus) -> None:
    worker, cancelled = Worker(), []

    @worker.step("a", timeout=0.05)
    async def slow(work: Work) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append(work.attempt)
            raise

    async with memory_bus() as bus, lab(bus, table({"id": "a", "max_attempts": 2}), worker) as made:
        await made.submit()
        await made.until(lambda: len(made.dead) > 0)
    assert cancelled == [0, 1]
    assert made.dead[0]["error"]["code"] == "step_timeout"


@in_loop
async def test_a_time_out_that_the_step_raised_itself_is_an_error_like_others(memory_bus: OpenBus) -> None:
    worker, _ = failing(TimeoutError("the other side said nothing"), times=99)
    async with memory_bus() as bus, lab(bus, table({"id": "a", "max_attempts": 1, "timeout": "1m"}), worker) as made:
        await made.submit()
        await made.until(lambda: len(made.dead) > 0)
    assert made.dead[0]["error"]["code"] == "TimeoutError"


# What a step may do


@in_loop
async def test_a_step_may_say_that_there_is_nothing_to_do(memory_bus: OpenBus) -> None:
    worker = Worker()

    @worker.step("a")
    async def skip(work: Work) -> None:
        raise Skip("no memory for guests")

    async with memory_bus() as bus, lab(bus, table("a"), worker) as made:
        await made.submit(payload={"reply": 1})
        assert (await made.ended()).kind == "completed"
        (skipped,) = [one for one in made.progress if one.kind == "skipped"]
        await made.until(lambda: len(made.delivered) > 0)
    assert skipped.detail == "no memory for guests"
    step = made.delivered[0]["envelope"]["routingSlip"][1]
    assert (step["status"], step["notes"]) == ("SKIP", "no memory for guests")


@in_loop
async def test_a_function_runs_in_a_thread(memory_bus: OpenBus) -> None:
    worker, threads = Worker(), []

    @worker.step("a")
    def work_in_thread(work: Work) -> dict[str, Any]:
        threads.append(threading.get_ident())
        return {"reply": work.payload["n"] + 1}

    async with memory_bus() as bus, lab(bus, table("a"), worker) as made:
        await made.submit(payload={"n": 1})
        await made.until(lambda: len(made.delivered) > 0)
    assert made.delivered[0]["payload"]["reply"] == 2
    assert threads != [threading.get_ident()]


@in_loop
async def test_what_a_failed_attempt_did_to_the_message_is_not_kept(memory_bus: OpenBus) -> None:
    worker = Worker()

    @worker.step("a")
    async def half(work: Work) -> None:
        if work.attempt == 0:
            work.payload["half"] = True
            work.itinerary.skip("b")
            work.undo_with("half")
            raise RuntimeError("in the middle")
        work.payload["reply"] = sorted(work.payload)

    @worker.step("b")
    async def second(work: Work) -> None:
        work.note({"seen": True})

    async with memory_bus() as bus, lab(bus, table("a", "b"), worker) as made:
        await made.submit(payload={"order": 1})
        await made.until(lambda: len(made.delivered) > 0)
    assert made.delivered[0]["payload"]["reply"] == ["order"]
    a, b = made.delivered[0]["envelope"]["routingSlip"][1:]
    assert b["status"] == "OK"
    assert json.loads(b["notes"]) == {"seen": True}
    assert "attributes" not in a


@in_loop
async def test_a_step_may_change_what_lies_ahead(memory_bus: OpenBus) -> None:
    worker = Worker()

    @worker.step("a")
    async def change(work: Work) -> None:
        work.itinerary.insert(RoutingStep("c", Status.PENDING))
        work.itinerary.skip("b", "c is better")

    @worker.step("c")
    async def better(work: Work) -> dict[str, Any]:
        return {"reply": "c"}

    async with memory_bus() as bus, lab(bus, table("a", "b"), worker) as made:
        await made.submit()
        await made.until(lambda: len(made.delivered) > 0)
    slip = made.delivered[0]["envelope"]["routingSlip"]
    assert [(step["id"], step["status"]) for step in slip[1:]] == [("a", "OK"), ("c", "OK"), ("b", "SKIP")]


@pytest.mark.parametrize("returned", ["text", 7, ["list"]])
@in_loop
async def test_a_step_that_returns_something_else_has_failed(memory_bus: OpenBus, returned: object) -> None:
    worker = Worker()

    @worker.step("a")
    async def wrong(work: Work) -> Any:
        return returned

    async with memory_bus() as bus, lab(bus, table({"id": "a", "max_attempts": 1}), worker) as made:
        await made.submit()
        await made.until(lambda: len(made.delivered) + len(made.dead) > 0)
    assert "a dict of fields" in made.dead[0]["error"]["message"]


@in_loop
async def test_a_payload_that_cannot_be_sent_is_an_error_of_the_step(memory_bus: OpenBus) -> None:
    worker = Worker()

    @worker.step("a")
    async def wrong(work: Work) -> None:
        work.payload["when"] = object()

    async with memory_bus() as bus, lab(bus, table({"id": "a", "max_attempts": 1}), worker) as made:
        await made.submit()
        await made.until(lambda: len(made.dead) > 0)
    assert "object" in made.dead[0]["error"]["message"]


@pytest.mark.parametrize("timeout", ["soon", "-1s", 0, -1, True, float("nan")])
def test_a_time_out_that_is_none_is_refused_where_it_is_written(timeout: Any) -> None:
    with pytest.raises(InvalidSlip, match="timeout="):
        Worker().step("a", timeout=timeout)(lambda work: None)


def test_durations_may_be_written_as_in_route_tables() -> None:
    worker = Worker()
    worker.step("a", timeout="300ms")(lambda work: None)
    assert worker._stations[0][0].timeout_s == 0.3


# Once


def at_a(correlation_id: str = "c-1", attempt: int = 0) -> bytes:
    step = RoutingStep("a", Status.PENDING, attempt=attempt)
    return encode(Event(Envelope("1", "test", correlation_id, routing_slip=(step,)), "order.v1", {}))


@in_loop
async def test_the_same_attempt_that_comes_twice_is_made_once(any_bus: OpenBus) -> None:
    worker, attempts = failing(RuntimeError(), times=0)
    async with any_bus() as bus, lab(bus, table("a"), worker) as made:
        await bus.publish("internal.a.v1", at_a())
        await made.told("finished a")
        returned = Recorder()
        await bus.subscribe(ROUTER, "test", returned)
        await bus.publish("internal.a.v1", at_a())
        await bus.publish("internal.a.v1", at_a("c-2"))
        await made.told("finished a", "c-2")
    assert attempts == [0, 0]


@in_loop
async def test_an_attempt_whose_end_could_not_be_written_down_is_made_again(memory_bus: OpenBus) -> None:
    """Recorded before the work, it would be lost."""
    worker, attempts = failing(RuntimeError(), times=0)
    async with memory_bus() as bus, open_store(":memory:") as store:
        claim, failed = store.claim, list[object]()

        async def fail_once(*args: Any, **kwargs: Any) -> bytes:
            if not failed:
                failed.append(args)
                raise ConnectionError("the store is away")
            return await claim(*args, **kwargs)

        async with lab(bus, table("a"), worker, store=store) as made:
            store.claim = fail_once  # type: ignore[method-assign]
            await bus.publish("internal.a.v1", at_a())
            await made.told("completed")
    assert attempts == [0, 0]


@in_loop
async def test_what_is_guarded_is_done_once_over_all_attempts(memory_bus: OpenBus) -> None:
    worker, charges, keys = Worker(), [], []

    @worker.step("a")
    async def charge(work: Work) -> dict[str, Any]:
        keys.append(work.idempotency_key("charge"))

        async def pay() -> dict[str, str]:
            charges.append(work.attempt)
            return {"receipt": "r-1"}

        receipt = await work.once("charge", pay)
        if work.attempt < 2:
            raise RuntimeError("after it was charged")
        return {"reply": receipt, "again": await work.once("other", lambda: 5)}

    async with memory_bus() as bus, lab(bus, table("a"), worker) as made:
        await made.submit()
        await made.until(lambda: len(made.delivered) > 0)
    assert charges == [0]
    assert made.delivered[0]["payload"] == {"reply": {"receipt": "r-1"}, "again": 5}
    assert len(set(keys)) == 1


@in_loop
async def test_a_step_that_was_sent_to_the_wrong_place_has_failed_and_does_not_run_in_circles(
    memory_bus: OpenBus,
) -> None:
    worker, _ = failing(RuntimeError(), times=0)
    async with memory_bus() as bus, lab(bus, table({"id": "b", "topic": "internal.a.v1"}), worker) as made:
        await made.submit()
        await made.until(lambda: len(made.dead) > 0)
    assert made.dead[0]["error"]["code"] == "misrouted"
    assert summary(made.dead[0])["b"] == "ERROR"


# Pauses


@in_loop
async def test_a_paused_step_is_left_alone_until_it_is_resumed(any_bus: OpenBus) -> None:
    worker, attempts = failing(RuntimeError(), times=0)
    async with any_bus() as bus, open_store(":memory:") as store:
        if bus.driver == "pubsub":  # which keeps nothing for a group that is not there yet
            await (await bus.subscribe("internal.a.v1", "step-a", Recorder())).close()
        control = Control(store, fast())
        await control.pause("a", "the bank is away")
        async with lab(bus, table("a"), worker, store=store) as made:
            await made.submit()
            await made.told("planned")
            await asyncio.sleep(0.3)  # nothing is to happen, and nothing tells when nothing happens
            assert attempts == []
            assert (await control.pauses())["a"].reason == "the bank is away"
            await control.resume("a")
            assert (await made.ended()).kind == "completed"
    assert attempts == [0]


@in_loop
async def test_a_step_at_work_is_paused(memory_bus: OpenBus, caplog: pytest.LogCaptureFixture) -> None:
    worker, attempts = failing(RuntimeError(), times=0)
    async with memory_bus() as bus, lab(bus, table("a"), worker) as made:
        await Control(made.store, made.settings).pause("a", "for the night")

        async def is_left() -> bool:
            await asyncio.sleep(0)
            return not any(one.topic == "internal.a.v1" for one in bus._subscriptions)

        await until(is_left)
        assert "step a is paused: for the night" in caplog.text
        await made.submit()
        await made.told("planned")
        await asyncio.sleep(0.1)
    assert attempts == []


@in_loop
async def test_a_step_may_pause_itself_for_all_messages_and_it_costs_no_attempt(memory_bus: OpenBus) -> None:
    worker, tried = Worker(), []

    @worker.step("a", max_in_flight=1)
    async def pause(work: Work) -> None:
        tried.append((work.correlation_id, work.attempt))
        if len(tried) == 1:
            raise Pause("the bank is away", seconds=1)

    async with memory_bus() as bus, lab(bus, table("a"), worker) as made:
        await made.submit()
        while not (held := await Control(made.store, made.settings).pauses()):
            await asyncio.sleep(0.01)
        assert held["a"].reason == "the bank is away"
        assert (await made.ended()).kind == "completed"
    assert tried == [("c-1", 0), ("c-1", 0)]
    assert "retried a" not in made.kinds()


# Seeing


@in_loop
async def test_what_is_counted(memory_bus: OpenBus, registry: CollectorRegistry) -> None:
    worker, _ = failing(StepFailed("busy"), times=1)
    async with memory_bus() as bus, lab(bus, table("a"), worker) as made:
        await made.submit()
        await made.ended()

        def value(name: str, **labels: str) -> float | None:
            return registry.get_sample_value(name, labels)

        assert value("step_attempts_total", step="a") == 2
        assert value("step_errors_total", step="a", code="busy") == 1
        assert value("step_duration_ms_count", step="a") == 2
        assert value("slips_total", event="planned") == 1
        assert value("messages_inflight", driver="memory", topic="internal.a.v1", group="step-a") == 0
