"""Tells of a bundle what happens to its tasks, much of it at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from slipstream.bus import Bus
from slipstream.jobs.messages import DownloadTask, LogLevel
from slipstream.jobs.reporter import Reporter

GATHERED_S = 0.05
"""Two processes that each tell what they have at once tell it in twice as many requests: the bus had as much to do with
them as with the tasks themselves."""


class GatheringReporter(Reporter):
    """A task of a bundle is over when the bundle is. So nobody waits for his own words to be safe: all of them are, or
    none of the tasks is over, when `flush` has returned."""

    def __init__(self, bus: Bus, topic: str) -> None:
        super().__init__(bus, topic)
        self._failure: BaseException | None = None

    async def tell(
        self,
        task: DownloadTask,
        step: str,
        text: str,
        fields: Mapping[str, object],
        level: LogLevel = LogLevel.LOG_LEVEL_INFO,
    ) -> None:
        self.mention(task, step, text, fields, level)

    async def flush(self) -> None:
        """Raises BusError where something that was told since the last time is not stored."""
        async with self._turn:
            await self._publish()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    async def _publish(self) -> None:
        stored = self._stored
        await super()._publish()
        if stored is not None and stored.done() and (failure := stored.exception()) is not None:
            self._failure = self._failure or failure

    async def _gather(self) -> None:
        await asyncio.sleep(GATHERED_S)
