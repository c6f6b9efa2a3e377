"""Routers that are Python functions, of every temper."""

from __future__ import annotations

import asyncio

import pytest

from slipstream.broker import RoutingDecision
from slipstream.router import CallableRouter, RoutedMessage, RouterHook, RouterRefused, load_router

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


@pytest.mark.parametrize("name", ["failing", "failing_async", "nonsense", "more_nonsense"])
def test_a_failure_is_logged_and_counted_and_decides_nothing(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """Ruling 13."""
    decision, hook = decide(name)
    assert decision is None
    assert (hook.decided_total, hook.failed_total) == (0, 1)
    assert "the router failed for a message to t" in caplog.text


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


@pytest.mark.parametrize(
    "reference", [":", "module", "module:", ":name", "no.such.module:f", "os:no_such", "os:sep", "os:path.nothing"]
)
def test_a_reference_to_nothing_is_refused_by_name(reference: str) -> None:
    with pytest.raises(RouterRefused, match=reference):
        CallableRouter.load(reference)


def test_a_name_may_have_dots() -> None:
    assert callable(CallableRouter.load("os:path.join").function)
