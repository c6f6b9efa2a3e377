"""The time the broker is told: of day, because leases, deadlines and retention outlive the process."""

from __future__ import annotations

import time
from collections.abc import Callable


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
