"""The logs of a job, replayed from the stream, and followed until it has ended."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

from slipstream.bus import Bus, InvalidArgument, Stored
from slipstream.jobs.errors import MalformedMessage
from slipstream.jobs.ledger import JobSnapshot, Ledger
from slipstream.jobs.ledger.telling import PROGRESS, STEP
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
        if job.log_offset < 0:
            await check_log(self._bus, self._topic)
            if not follow:
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
        try:
            async with contextlib.aclosing(self._bus.read(self._topic, job.log_partition, start, start)) as nothing:
                async for _ in nothing:
                    break
        except InvalidArgument:
            start = 0  # the first are too old to be there: then what is left
        async with contextlib.aclosing(self._bus.read(self._topic, job.log_partition, start)) as messages:
            async for stored in messages:
                if (entry := _entry(stored, job.job_id)) is not None:
                    yield entry

    async def _followed(self, job: JobSnapshot, start: int) -> AsyncIterator[tuple[int, JobLog] | None]:
        while job.log_offset < 0:  # where they are is known when the first of them has been heard
            if self._is_ended(job):
                return
            yield None
            await asyncio.sleep(LOOK_S / 5)
            job = self._ledger.job(job.job_id) or job
        following = max(start, job.log_offset)
        end: int | None = None
        """Where the job's logs were over when it had ended: the partition may well go on for ever, with those of
        others."""
        told_at = time.monotonic()
        async with contextlib.aclosing(self._bus.follow(self._topic, job.log_partition, following)) as batches:
            waiting: asyncio.Future[list[Stored]] = asyncio.ensure_future(anext(batches))
            try:
                while True:
                    if end is None and self._is_ended(job):
                        end = self._ledger.position(self._topic, job.log_partition)
                    if end is not None and following >= end:
                        return
                    # A task of its own: to cancel what waits in a generator would end the generator.
                    await asyncio.wait({waiting}, timeout=LOOK_S)
                    batch: list[Stored] = []
                    if waiting.done():
                        batch = waiting.result()
                        waiting = asyncio.ensure_future(anext(batches))
                    elif end is not None:
                        return
                    for stored in batch:
                        following = stored.offset + 1
                        if (entry := _entry(stored, job.job_id)) is not None:
                            told_at = time.monotonic()
                            yield entry
                    if time.monotonic() - told_at >= LOOK_S:
                        told_at = time.monotonic()
                        yield None
            finally:
                waiting.cancel()
                await asyncio.gather(waiting, return_exceptions=True)

    def _is_ended(self, job: JobSnapshot) -> bool:
        found = self._ledger.job(job.job_id)
        return found is None or found.is_ended


async def check_log(bus: Bus, topic: str) -> None:
    """Raise Unsupported where the engine keeps no log of a topic: its first messages cannot even be asked for."""
    async with contextlib.aclosing(bus.read(topic, 0, 0, 0)) as nothing:
        async for _ in nothing:
            break


def _entry(stored: Stored, job_id: str) -> tuple[int, JobLog] | None:
    try:
        log = decode(JobLog, stored.data)
    except MalformedMessage:
        return None
    if log.job_id != job_id or log.fields.get(STEP) == PROGRESS:  # a report each second is no step
        return None
    return stored.offset, log
