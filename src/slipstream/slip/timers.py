"""Does what is due: time-outs, deadlines, and what people ask for through the store."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from slipstream.slip import clock
from slipstream.slip.settings import SlipSettings
from slipstream.slip.store import Store, Timer

log = logging.getLogger(__name__)

BATCH = 100
PURGE_S = 30.0


class Timers:
    """Any number of processes may do so on one store: each timer is one's at a time, until it has been acted upon."""

    def __init__(
        self, store: Store, queue: str, act: Callable[[Timer], Awaitable[None]], settings: SlipSettings
    ) -> None:
        self._store = store
        self._queue = queue
        self._act = act
        self._poll_s = settings.poll_ms / 1000
        self._lease_ms = settings.ack_deadline_ms
        self._purge_at = 0.0

    async def run(self) -> None:
        failing = False
        while True:
            try:
                if await self.poll() < BATCH:
                    await asyncio.sleep(self._poll_s)
                failing = False
            except Exception:
                if not failing:
                    log.exception("what is due in %s is not known; trying on", self._queue)
                failing = True
                await asyncio.sleep(self._poll_s)

    async def poll(self) -> int:
        """Acts upon what is due now, and says how many that were."""
        due = await self._store.due(self._queue, clock.now_ms(), limit=BATCH, lease_ms=self._lease_ms)
        for timer in due:
            try:
                await self._act(timer)
            except Exception:
                log.exception("timer %s of %s is tried again in %d ms", timer.id, self._queue, self._lease_ms)
                continue
            await self._store.unschedule(self._queue, timer.id, due_ms=timer.due_ms)
        if time.monotonic() >= self._purge_at:
            self._purge_at = time.monotonic() + PURGE_S
            await self._store.purge(clock.now_ms())
        return len(due)
