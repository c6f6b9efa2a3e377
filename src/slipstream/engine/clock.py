"""The time the broker is told: of day, because leases, deadlines and retention outlive the process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Protocol


class Timer(Protocol):
    def cancel(self) -> None: ...


class Timekeeper(Protocol):
    """Says what time it is, and when it has come: the two go together, or a test could move only one of them."""

    def now_ms(self) -> int:
        """Never less than the last time."""
        ...

    def call_at(
        self, loop: asyncio.AbstractEventLoop, due_ms: int, min_delay_ms: int, callback: Callable[[], object]
    ) -> Timer:
        """Calls back in the loop's thread at `due_ms`, though not before `min_delay_ms` from now."""
        ...


class Clock:
    """Wall-clock time that never goes back.

    When the machine's clock is set back, time neither jumps nor stands still, for leases would not run out until the
    clock had caught up: it goes on at half speed until then.
    """

    def __init__(self, wall: Callable[[], float] = time.time, steady: Callable[[], float] = time.monotonic) -> None:
        self._wall = wall
        self._steady = steady
        self._now_ms = 0
        self._ahead_since: tuple[float, int] | None = None
        """When the wall clock was found to be behind, and what time it was here."""

    def now_ms(self) -> int:
        wall_ms = int(self._wall() * 1000)
        if wall_ms >= self._now_ms:
            self._now_ms = wall_ms
            self._ahead_since = None
        else:
            steady = self._steady()
            since, then_ms = self._ahead_since = self._ahead_since or (steady, self._now_ms)
            self._now_ms = then_ms + int((steady - since) * 500)
        return self._now_ms

    def call_at(
        self, loop: asyncio.AbstractEventLoop, due_ms: int, min_delay_ms: int, callback: Callable[[], object]
    ) -> Timer:
        return loop.call_later(max(due_ms - self.now_ms(), min_delay_ms) / 1000, callback)


class ManualClock:
    """Time that stands still until it is moved by hand, for tests that should not wait and not depend on waiting."""

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = start_ms
        self._timers: list[tuple[int, int, _ManualTimer]] = []
        self._numbers = count()

    def now_ms(self) -> int:
        return self._now_ms

    def call_at(
        self, loop: asyncio.AbstractEventLoop, due_ms: int, min_delay_ms: int, callback: Callable[[], object]
    ) -> Timer:
        timer = _ManualTimer(callback)
        heappush(self._timers, (max(due_ms, self._now_ms + min_delay_ms), next(self._numbers), timer))
        return timer

    def advance(self, ms: int) -> None:
        """Lets time pass, in the loop's thread.

        What comes due meanwhile is called in order, each at its own time, also what such a call asks for in turn: a
        lease that ends after two seconds and the retry a second later both come in ten. What they leave to the loop,
        as the answer of the journal, comes when the loop turns, at the time that was advanced to.
        """
        assert ms >= 0, "time does not go back"
        until_ms = self._now_ms + ms
        while self._timers and self._timers[0][0] <= until_ms:
            due_ms, _, timer = heappop(self._timers)
            if timer.callback is not None:
                self._now_ms = max(self._now_ms, due_ms)
                timer.callback()
        self._now_ms = until_ms


class _ManualTimer:
    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self.callback = None
