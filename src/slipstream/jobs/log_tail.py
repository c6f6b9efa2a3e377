"""The logs of a job, replayed from the stream, and followed until it has ended."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from slipstream.bus import Bus, Stored
from slipstream.jobs.errors import MalformedMessage
from slipstream.jobs.ledger import JobSnapshot, Ledger
from slipstream.jobs.messages import JobLog, decode
from slipstream.jobs.streams import Streams

LOOK_S = 0.5
"""How often it is looked whether the job has ended, while nothing is logged."""


class LogTail:
    def __init__(self, bus: Bus, ledger: Ledger, streams: Streams) -> None:
        self._bus = bus
        self._ledger = ledger
        self._topic = streams.logs.topic

    async def logs(
        self, job: JobSnapshot, *, since_offset: int = 0, limit: int | None = None, follow: bool = False
    ) -> AsyncIterator[tuple[int, JobLog] | None]:
        """With their offsets, from `since_offset` on. None in between, where it follows and there is nothing: for who
        must know that this is still alive. Raises Unsupported where the engine keeps no log."""
        if job.log_offset < 0 and not follow:
            return  # it has none yet
        sent = 0
        async for found in self._entries(job, max(since_offset, job.log_offset, 0), follow=follow):
            yield found
            sent += found is not None
            if limit is not None and sent >= limit:
                return

    async def _entries(self, job: JobSnapshot, start: int, *, follow: bool) -> AsyncIterator[tuple[int, JobLog] | None]:
        if follow:
            async for found in self._followed(job, start):
                yield found
            return
        async with contextlib.aclosing(self._bus.read(self._topic, job.log_partition, start)) as messages:
            async for stored in messages:
                if (entry := _entry(stored, job.job_id)) is not None:
                    yield entry

    async def _followed(self, job: JobSnapshot, start: int) -> AsyncIterator[tuple[int, JobLog] | None]:
        while job.log_offset < 0:  # where its logs are is known when the first has been heard
            yield None
            if self._is_ended(job):
                return  # as others have told: there will be none
            await asyncio.sleep(LOOK_S / 5)
            job = self._ledger.job(job.job_id) or job
        start = max(start, job.log_offset)
        async with contextlib.aclosing(self._bus.follow(self._topic, job.log_partition, start)) as batches:
            waiting: asyncio.Future[list[Stored]] = asyncio.ensure_future(anext(batches))
            try:
                while True:
                    was_ended = self._is_ended(job)
                    # A task of its own: to cancel what waits in a generator would end the generator.
                    await asyncio.wait({waiting}, timeout=LOOK_S)
                    if not waiting.done():
                        if was_ended:
                            return
                        yield None
                        continue
                    batch = waiting.result()
                    waiting = asyncio.ensure_future(anext(batches))
                    for stored in batch:
                        if (entry := _entry(stored, job.job_id)) is not None:
                            yield entry
            finally:
                waiting.cancel()
                await asyncio.gather(waiting, return_exceptions=True)

    def _is_ended(self, job: JobSnapshot) -> bool:
        found = self._ledger.job(job.job_id)
        return found is None or found.is_ended


def _entry(stored: Stored, job_id: str) -> tuple[int, JobLog] | None:
    try:
        log = decode(JobLog, stored.data)
    except MalformedMessage:
        return None
    return (stored.offset, log) if log.job_id == job_id else None
