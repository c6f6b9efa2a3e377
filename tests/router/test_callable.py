"""Routers that are Python functions, of every temper."""

from __future__ import annotations

import asyncio
import threading

import pytest

from slipstream.broker import RoutingDecision
from slipstream.router import CallableRouter, RoutedMessage, RouterHook, RouterRefused, load_router
from slipstream.router.breaker import PAUSE_S, SETTLED_S, TIMEOUTS_MAX
from tests.broker.simulator import Simulator

MESSAGE = RoutedMessage(b"k", b"v")


def decide(name: str, timeout_ms: int = 5_000) -> tuple[RoutingDecision | None, RouterHook]:
    async def ask() -> tuple[RoutingDecision | None, RouterHook]:
        hook = load_router(f"tests.router.routers:{name}", timeout_ms)
        decision = await hook.decide("t", MESSAGE)
        await hook.close()
        return decision, hook

    return asyncio.run(ask())


@pytest.mark.parametrize("name", ["label", "label_async", "labeller", "as_dict"])
def test_its_decision_is_taken(name: str) -> None:
    decision, hook = decide(name)
    assert decision == RoutingDecision(label="t", meta={"key": "k", "value": "v"})
    assert (hook.decided_total, hook.failed_total) == (1, 0)


def test_it_may_have_no_opinion() -> None:
    decision, hook = decide("leave")
    assert decision is None
    assert hook.failed_total == 0


@pytest.mark.parametrize("name", ["failing", "failing_async", "nonsense", "more_nonsense", "mistyped", "not_text"])
def test_a_failure_is_logged_and_counted_and_decides_nothing(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """Ruling 13."""
    decision, hook = decide(name)
    assert decision is None
    assert (hook.decided_total, hook.failed_total) == (0, 1)
    assert "the router fails" in caplog.text
    assert "for a message to t" in caplog.text


@pytest.mark.parametrize("name", ["hanging", "hanging_async"])
def test_a_time_out_is_logged_and_counted_and_decides_nothing(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """Ruling 13."""
    decision, hook = decide(name, timeout_ms=20)
    assert decision is None
    assert hook.failed_total == 1
    assert "longer than 20 ms" in caplog.text


def test_a_slow_call_does_not_hold_up_the_others() -> None:
    """Functions run in threads of their own; the loop goes on."""

    async def ask() -> list[object]:
        hanging = CallableRouter.load("tests.router.routers:hanging")
        label = CallableRouter.load("tests.router.routers:label")
        stuck = asyncio.create_task(hanging.route("t", MESSAGE))
        answer = await label.route("t", MESSAGE)
        stuck.cancel()
        return [answer, stuck.done()]

    answer, stuck_was_done = asyncio.run(ask())
    assert isinstance(answer, RoutingDecision)
    assert stuck_was_done is False


def ask(hook: RouterHook, times: int) -> list[RoutingDecision | None]:
    async def decide_all() -> list[RoutingDecision | None]:
        return [await hook.decide("t", MESSAGE) for _ in range(times)]

    return asyncio.run(decide_all())


def test_a_router_that_hangs_is_paused_and_asked_again_with_a_thread_that_is_free() -> None:
    """The calls that hang use up all threads there are at first."""
    hanging, now_s = threading.Event(), 0.0

    def route(topic: str, message: RoutedMessage) -> RoutingDecision:
        if hanging.is_set():
            threading.Event().wait()
        return RoutingDecision(label="asked")

    router = CallableRouter(route, threads=2)
    hook = RouterHook(router, 20, lambda: now_s)
    hanging.set()
    assert ask(hook, 10) == [None] * 10
    assert (hook.failed_total, hook.skipped_total, router.stuck) == (TIMEOUTS_MAX, 10 - TIMEOUTS_MAX, TIMEOUTS_MAX)
    assert hook.trouble.startswith("it is paused")
    now_s += PAUSE_S
    assert ask(hook, 2) == [None, None]
    assert hook.failed_total == TIMEOUTS_MAX + 1
    hanging.clear()
    now_s += SETTLED_S
    patient = RouterHook(router, 30_000)
    assert ask(patient, 2) == [RoutingDecision(label="asked")] * 2
    hook.timeout_s = patient.timeout_s
    assert ask(hook, 2) == [RoutingDecision(label="asked")] * 2
    assert hook.trouble == ""


def test_a_function_that_hangs_too_often_is_not_called_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slipstream.router.callable.STUCK_MAX", 2)
    router = CallableRouter.load("tests.router.routers:hanging")
    hook = RouterHook(router, 20)
    ask(hook, 2)
    ask(hook, 3)
    assert router.stuck == 2
    assert "2 calls of it have not returned" in hook.trouble


def test_a_change_of_state_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    now_s = 0.0
    works = False

    def route(topic: str, message: RoutedMessage) -> RoutingDecision | None:
        if not works:
            raise ZeroDivisionError("the model is gone")
        return None

    hook = RouterHook(CallableRouter(route), 5_000, lambda: now_s)
    with caplog.at_level("INFO"):
        ask(hook, 100)
        works = True
        ask(hook, 10)
        now_s = SETTLED_S
        ask(hook, 10)
    lines = [record.getMessage() for record in caplog.records if record.name == "slipstream.router.hook"]
    assert len(lines) == 2
    assert "the model is gone" in lines[0]
    assert lines[1] == "the router works again; in 10 s 100 messages went without it"


def test_a_router_that_always_names_a_partition_that_is_not_there_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Also where so little is produced that it has not failed for ten seconds each time that it is asked."""
    now_s, partition = 0.0, 99
    hook = RouterHook(
        CallableRouter(lambda topic, message: RoutingDecision(partition_override=partition)), 5_000, lambda: now_s
    )
    sim = Simulator()
    sim.create()
    sim.broker.intake.on_routed = hook.note_outcome

    def produce() -> None:
        sim.broker.produce(sim.now_ms, "t", b"", b"v", decision=ask(hook, 1)[0])

    with caplog.at_level("INFO"):
        for _ in range(5):
            produce()
            now_s += SETTLED_S + 1
            assert hook.trouble.startswith("it fails")
        partition = 0
        produce()
    assert hook.trouble == ""
    assert (hook.failed_total, sim.broker.intake.router_misses_total) == (0, 5)
    first, last = [record.getMessage() for record in caplog.records if record.name == "slipstream.router.hook"]
    assert "its decision cannot be followed: partition_override out of range" in first
    assert last == "the router works again; in 55 s 5 messages went without it"


@pytest.mark.parametrize(
    "reference", [":", "module", "module:", ":name", "no.such.module:f", "os:no_such", "os:sep", "os:path.nothing"]
)
def test_a_reference_to_nothing_is_refused_by_name(reference: str) -> None:
    with pytest.raises(RouterRefused, match=reference):
        CallableRouter.load(reference)


def test_a_name_may_have_dots() -> None:
    assert callable(CallableRouter.load("os:path.join").function)
