"""The last ten minutes in numbers, for the small plots: a ring of one value for every five seconds."""

from __future__ import annotations

from collections import deque

import msgspec

from slipstream.api.events import Stats
from slipstream.api.overview import History

STEP_MS = 5_000
STEPS = 120


class _Step(msgspec.Struct):
    """What was seen in one step."""

    number: int
    time_ms: int = 0
    seen_ms: int = 0
    """How much time the rates below are of."""
    produced: float = 0.0
    acked: float = 0.0
    oldest_ms: int = 0
    in_flight: int = 0
    dead_letters: int = 0

    def add(self, stats: Stats, dead_letters: int) -> None:
        self.time_ms = stats.time_ms
        self.seen_ms += stats.interval_ms
        self.produced += stats.produced_per_s * stats.interval_ms
        self.acked += stats.acked_per_s * stats.interval_ms
        self.oldest_ms = max(self.oldest_ms, stats.oldest_unfinished_age_ms)
        self.in_flight = stats.in_flight
        self.dead_letters = dead_letters


class Ring:
    """Rates are of all the time in a step, however often it was looked; the oldest is the worst of it."""

    def __init__(self) -> None:
        self._steps: deque[_Step] = deque(maxlen=STEPS)

    def add(self, stats: Stats, dead_letters: int) -> None:
        """`dead_letters` are those of all sources."""
        number = stats.time_ms // STEP_MS
        if not self._steps or self._steps[-1].number != number:
            self._steps.append(_Step(number))
        self._steps[-1].add(stats, dead_letters)

    def history(self) -> History:
        steps = [step for step in self._steps if step.number > self._steps[-1].number - STEPS]
        return History(
            time_ms=[step.time_ms for step in steps],
            produced_per_s=[round(step.produced / step.seen_ms, 3) for step in steps],
            acked_per_s=[round(step.acked / step.seen_ms, 3) for step in steps],
            oldest_ms=[step.oldest_ms for step in steps],
            in_flight=[step.in_flight for step in steps],
            dead_letters=[step.dead_letters for step in steps],
        )
