"""Ends what takes too long, with one timer for all downloads of a worker.

A download has several deadlines, and most of them move with every piece that comes. As timers of the loop they cost 15
to 22 µs a download (measured by themselves; a small download is some 150); here it is 2, and moving one an assignment.
"""

from __future__ import annotations

import asyncio
import time
from types import TracebackType

TICK_S_MAX = 1.0
TICK_S_MIN = 0.005


class Watch:
    """Looks at all that is under way, a few times within the shortest of the timeouts.

    Example:
        with watch.over(ends_at) as watched:
            watched.expires_at = time.monotonic() + 30
            await something()  # TimeoutError, not much later than that
    """

    def __init__(self, shortest_s: float) -> None:
        self._tick_s = min(TICK_S_MAX, max(TICK_S_MIN, shortest_s / 10))
        self._loop = asyncio.get_running_loop()
        self._watched: set[Watched] = set()
        self._timer: asyncio.TimerHandle | None = None

    def over(self, expires_at: float) -> Watched:
        return Watched(self, expires_at)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _add(self, watched: Watched) -> None:
        self._watched.add(watched)
        if self._timer is None:
            self._timer = self._loop.call_later(self._tick_s, self._tick)

    def _tick(self) -> None:
        now = time.monotonic()
        for watched in self._watched:
            if now >= watched.expires_at:
                watched.expire()
        self._timer = self._loop.call_later(self._tick_s, self._tick) if self._watched else None


class Watched:
    """What one task does in a `with`: raises TimeoutError there once it has expired."""

    __slots__ = ("_cancelling", "_is_expired", "_task", "_watch", "expires_at")

    def __init__(self, watch: Watch, expires_at: float) -> None:
        self.expires_at = expires_at
        """May be moved, in either direction, until it is reached."""
        self._watch = watch
        self._is_expired = False
        task = asyncio.current_task()
        assert task is not None, "only a task can be ended"
        self._task = task
        self._cancelling = task.cancelling()

    def expire(self) -> None:
        if not self._is_expired:
            self._is_expired = True
            self._task.cancel()

    def __enter__(self) -> Watched:
        self._watch._add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._watch._watched.discard(self)
        # As asyncio.timeout does it: somebody else may have cancelled the task as well, and that must not be lost.
        if self._is_expired and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error
