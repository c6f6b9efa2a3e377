"""Which jobs are cancelled or paused: operators say so on `jobs.control`, and the service and all workers follow it.

Each message is a JobStatus with the state CANCELLED, PAUSED, or QUEUED for a job that goes on. The newest of a job
counts. A process reads the stream from its beginning when it starts, so nothing is kept anywhere else.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Literal, TypeAlias

from slipstream.bus import Bus, BusError, Stored, Unsupported
from slipstream.jobs.errors import JobsError, MalformedMessage
from slipstream.jobs.messages import JobState, JobStatus, decode

log = logging.getLogger(__name__)

Held: TypeAlias = Literal["", "paused", "cancelled"]

STATES: dict[Held, JobState] = {
    "": JobState.JOB_STATE_QUEUED,
    "paused": JobState.JOB_STATE_PAUSED,
    "cancelled": JobState.JOB_STATE_CANCELLED,
}
WORDS: dict[int, Held] = {state: held for held, state in STATES.items()}
PAUSE_S_MAX = 10.0


async def _ignore(job_id: str, held: Held, at_ms: int) -> None:
    """For a process that only asks `held`."""


class Controls:
    """Follows the stream.

    Example:
        async with Controls(bus, "fetchbox.jobs.control").running() as controls:
            controls.held("job-1")  # "cancelled"
    """

    def __init__(
        self, bus: Bus, topic: str, on_change: Callable[[str, Held, int], Awaitable[object]] = _ignore
    ) -> None:
        """`on_change` is awaited with the job, what became of it, and when in milliseconds."""
        self._bus = bus
        self._topic = topic
        self._on_change = on_change
        self._held: dict[str, tuple[int, Held]] = {}
        self._next = 0

    def held(self, job_id: str) -> Held:
        return self._held[job_id][1] if job_id in self._held else ""

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Controls]:
        """What was said before is known when this begins. Raises BusError."""
        try:
            async with contextlib.aclosing(self._bus.read(self._topic)) as messages:
                async for stored in messages:
                    await self._take(stored)
        except Unsupported:
            log.info("jobs cannot be cancelled or paused: this engine keeps no log")
            yield self
            return
        following = asyncio.create_task(self._follow())
        try:
            yield self
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    async def _follow(self) -> None:
        pause_s = 0.1
        while True:
            try:
                async with contextlib.aclosing(self._bus.follow(self._topic, 0, self._next)) as batches:
                    async for batch in batches:
                        for stored in batch:
                            await self._take(stored)
                        pause_s = 0.1
            except (BusError, JobsError) as error:
                log.warning("%s cannot be followed, trying on: %s", self._topic, error)
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, PAUSE_S_MAX)

    async def _take(self, stored: Stored) -> None:
        try:
            status = decode(JobStatus, stored.data)
        except MalformedMessage as error:
            log.warning("a message on %s is left out: %s", self._topic, error)
            status = JobStatus()
        held = WORDS.get(status.state)
        if status.job_id and held is not None and self._held.get(status.job_id, (-1, ""))[0] <= status.timestamp_ms:
            await self._on_change(status.job_id, held, status.timestamp_ms)
            self._held[status.job_id] = (status.timestamp_ms, held)
        self._next = stored.offset + 1
