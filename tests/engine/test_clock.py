from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slipstream.broker import BrokerConfig, Delivery, RetryPolicy
from slipstream.engine.clock import Clock, ManualClock
from tests.store.node import Answer, Inbox, Node


class Machine:
    """A machine whose clock can be set."""

    def __init__(self) -> None:
        self.wall = 1_000.0
        self.steady = 5.0
        self.clock = Clock(lambda: self.wall, lambda: self.steady)

    def passes(self, seconds: float) -> int:
        self.wall += seconds
        self.steady += seconds
        return self.clock.now_ms()


def test_it_is_the_time_of_day() -> None:
    machine = Machine()
    assert machine.passes(0) == 1_000_000
    assert machine.passes(1.5) == 1_001_500


def test_it_follows_a_jump_forward() -> None:
    machine = Machine()
    machine.passes(0)
    machine.wall += 3_600
    assert machine.passes(1) == 4_601_000


def test_set_back_it_goes_on_at_half_speed_until_the_time_of_day_has_caught_up() -> None:
    """Standing still, as it would if it only never went back, no lease would run out for as long."""
    machine = Machine()
    machine.passes(0)
    machine.wall -= 10
    assert machine.passes(0) == 1_000_000
    assert machine.passes(2) == 1_001_000
    assert machine.passes(2) == 1_002_000
    assert machine.passes(16) == 1_010_000
    assert machine.passes(3) == 1_013_000, "caught up: as fast as the clock again"


def test_asked_often_it_loses_nothing() -> None:
    machine = Machine()
    machine.passes(0)
    machine.wall -= 100
    for _ in range(10_000):
        machine.passes(0.0005)
    assert 1_002_490 <= machine.clock.now_ms() <= 1_002_500


class Delays:
    """A loop that only writes down how long it was asked to wait."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def call_later(self, delay: float, callback: Callable[[], object]) -> None:
        self.seconds.append(delay)


def test_a_timer_waits_until_its_time_and_never_less_than_it_must() -> None:
    machine, loop = Machine(), Delays()
    now_ms = machine.passes(0)
    stand_in: Any = loop
    for due_ms in (now_ms + 2_500, now_ms + 3, now_ms - 1_000):
        machine.clock.call_at(stand_in, due_ms, 10, lambda: None)
    assert loop.seconds == [2.5, 0.01, 0.01]


# Moved by hand


@pytest.fixture
def loop() -> asyncio.AbstractEventLoop:
    stand_in: Any = None  # a clock that is moved by hand asks nothing of it
    return stand_in  # type: ignore[no-any-return]


def test_time_stands_still_until_it_is_moved(loop: asyncio.AbstractEventLoop) -> None:
    clock, called = ManualClock(1_000), []
    clock.call_at(loop, 1_500, 0, lambda: called.append(clock.now_ms()))
    assert clock.now_ms() == 1_000
    clock.advance(499)
    assert (clock.now_ms(), called) == (1_499, [])
    clock.advance(1)
    assert (clock.now_ms(), called) == (1_500, [1_500])


def test_what_is_due_is_called_in_order_each_at_its_own_time(loop: asyncio.AbstractEventLoop) -> None:
    clock = ManualClock(0)
    called: list[tuple[str, int]] = []

    def note(name: str) -> Callable[[], object]:
        return lambda: called.append((name, clock.now_ms()))

    def chain() -> None:
        called.append(("chain", clock.now_ms()))
        clock.call_at(loop, clock.now_ms() + 1_000, 0, note("link"))

    clock.call_at(loop, 5_000, 0, note("late"))
    clock.call_at(loop, 2_000, 0, chain)
    clock.call_at(loop, 2_000, 0, note("second"))
    clock.call_at(loop, 11_000, 0, note("never"))
    clock.call_at(loop, 4_000, 0, note("cancelled")).cancel()
    clock.advance(10_000)
    assert called == [("chain", 2_000), ("second", 2_000), ("link", 3_000), ("late", 5_000)]
    assert clock.now_ms() == 10_000


def test_what_is_always_due_again_does_not_stop_time(loop: asyncio.AbstractEventLoop) -> None:
    clock, called = ManualClock(0), []

    def again() -> None:
        called.append(clock.now_ms())
        clock.call_at(loop, 0, 10, again)

    clock.call_at(loop, 0, 10, again)
    clock.advance(35)
    assert called == [10, 20, 30]


def test_a_lease_and_the_retry_behind_it_both_come_in_one_step(tmp_path: Path) -> None:
    clock = ManualClock(0)
    config = BrokerConfig(lease_ms=2_000, pace_streams=False)
    with Node(tmp_path, broker=config, clock=clock) as node:
        node.create("t", retry=RetryPolicy(backoff_ms=1_000, max_backoff_ms=1_000))
        node.produce("t", b"v")
        came: list[tuple[int, int]] = []

        class Watched(Inbox):
            def deliver(self, deliveries: list[Delivery]) -> None:
                came.extend((clock.now_ms(), delivery.attempts) for delivery in deliveries)

        node.engine.attach("t", "g", "o", 2_000, Watched())
        node.until(lambda: came == [(0, 1)])
        answer = Answer()
        node.engine.nack(answer, "t", "g", 0, 0, "o", "not now")
        node.settle(answer)
        clock.advance(999)
        assert len(came) == 1
        clock.advance(9_001)
        assert came == [(0, 1), (1_000, 2), (4_000, 3), (7_000, 4), (10_000, 5)], "2 s of lease, 1 s until the retry"
