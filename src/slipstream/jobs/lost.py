"""Finds the jobs whose tasks are gone: retention has removed them before a worker had done them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

from fnv_hash_fast import fnv1a_32

from slipstream.bus import Bus, BusError, Unsupported
from slipstream.jobs.clock import now_ms
from slipstream.jobs.errors import JobsError
from slipstream.jobs.ledger import Ledger
from slipstream.jobs.streams import Streams

log = logging.getLogger(__name__)

LOOK_EVERY_S = 60.0
GRACE_MS = 60_000
"""How long nothing must have happened to a job: clocks differ, and a task that is just done is not lost."""


NEVER_MS = 2**62
"""A time after that of all changes, in milliseconds."""


class LostTasks:
    """Compares when something last happened to each job with the oldest task that the stream still holds.

    Example:
        async with LostTasks(bus, ledger, streams).running() as lost:
            print(lost.jobs)
    """

    def __init__(self, bus: Bus, ledger: Ledger, streams: Streams) -> None:
        self._bus = bus
        self._ledger = ledger
        self._topic = streams.tasks.topic
        self._partitions = streams.tasks.partitions
        self.jobs: dict[str, int] = {}
        """By job, how many of its resources have no task any more, as of the last look."""
        self._requeued: set[str] = set()
        """Jobs whose tasks were published again since the last look began."""

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[LostTasks]:
        looking = asyncio.create_task(self._look_for_ever())
        try:
            yield self
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)

    def requeued(self, job_id: str) -> None:
        """Note that the tasks of a job were published again."""
        self._requeued.add(job_id)
        self.jobs.pop(job_id, None)

    async def look(self) -> None:
        """Raises BusError, JobsError."""
        self._requeued.clear()
        # A job that was found stays, though it is paused since: it is not as old then as its tasks were.
        found = {job_id: left for job_id, left in self.jobs.items() if self._left(job_id) == left}
        unended = self._ledger.unended(now_ms() - GRACE_MS)
        oldest = await self._oldest_ms() if unended else []
        found |= {job_id: left for job_id, updated_ms, left in unended if self._is_lost(job_id, updated_ms, oldest)}
        for job_id in self._requeued & found.keys():
            del found[job_id]
        for job_id in found.keys() - self.jobs.keys():
            log.warning(
                "%d tasks of job %s are lost: retention of %s has removed them before they were done; "
                "slipstream jobs requeue %s publishes them again",
                found[job_id],
                job_id,
                self._topic,
                job_id,
            )
        self.jobs = found

    async def look_at(self, job_id: str) -> None:
        """Look for the lost tasks of one job now, also if something has just happened to it. Raises BusError."""
        found = [job for job in self._ledger.unended(NEVER_MS) if job[0] == job_id]
        with contextlib.suppress(Unsupported):  # an engine that keeps no log cannot be asked what it still holds
            oldest = await self._oldest_ms() if found else []
            self.jobs |= {job: left for job, updated_ms, left in found if self._is_lost(job, updated_ms, oldest)}

    def _is_lost(self, job_id: str, updated_ms: int, oldest: list[int | None]) -> bool:
        ages = [oldest[partition] for partition in self._partitions_of(job_id, len(oldest))]
        return all(at_ms is None or at_ms > updated_ms + GRACE_MS for at_ms in ages)

    def _left(self, job_id: str) -> int:
        job = self._ledger.job(job_id)
        if job is None or job.is_ended:
            return 0
        return job.resources_total - job.resources_completed - job.resources_failed

    def _partitions_of(self, job_id: str, count: int) -> set[int]:
        """Return the partitions that may hold the tasks of a job (ruling 1): those that were published before the topic
        was given more partitions are where the key led then."""
        key = fnv1a_32(job_id.encode())
        return {key % each for each in range(min(self._partitions, count), count + 1)}

    async def _oldest_ms(self) -> list[int | None]:
        """When the oldest message of each partition was published; None for a partition that has none."""
        info = await self._bus.topic(self._topic)
        return [await self._first_ms(partition) for partition in range(info.partitions if info is not None else 1)]

    async def _first_ms(self, partition: int) -> int | None:
        async with contextlib.aclosing(self._bus.read(self._topic, partition)) as messages:
            async for stored in messages:
                return stored.published_ms
        return None

    async def _look_for_ever(self) -> None:
        while True:
            try:
                await self.look()
            except Unsupported:
                return  # an engine that keeps no log cannot be asked what it still holds
            except (BusError, JobsError) as error:
                log.info("lost tasks cannot be looked for, trying on: %s", error)
            await asyncio.sleep(LOOK_EVERY_S)
