"""Which jobs are cancelled or paused: operators say so on `jobs.control`, and the service and all workers follow it.

Each message is a JobStatus with the state CANCELLED, PAUSED, or QUEUED for a job that goes on. The newest of a job
counts. A process reads the stream from its beginning when it starts, so nothing is kept anywhere else.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Literal, NamedTuple, TypeAlias

from slipstream.bus import Bus, Stored, Unsupported
from slipstream.jobs.clock import CLOCKS_DIFFER_MS, now_ms
from slipstream.jobs.errors import MalformedMessage
from slipstream.jobs.follower import Follower
from slipstream.jobs.messages import NAME_CHARS_MAX, JobState, JobStatus, decode

log = logging.getLogger(__name__)

Held: TypeAlias = Literal["", "paused", "cancelled"]

STATES: dict[Held, JobState] = {
    "": JobState.JOB_STATE_QUEUED,
    "paused": JobState.JOB_STATE_PAUSED,
    "cancelled": JobState.JOB_STATE_CANCELLED,
}
WORDS: dict[int, Held] = {state: held for held, state in STATES.items()}
DECISIONS_MAX = 100_000
"""Jobs whose newest decision is kept in memory. The one that came first is forgotten beyond."""


class Word(NamedTuple):
    """The newest decision of operators about a job."""

    at_ms: int
    held: Held


async def _ignore(job_id: str, held: Held, at_ms: int) -> None:
    """For a process that only asks `held`."""


class Controls:
    """The decisions of operators, followed on their stream.

    Example:
        async with Controls(bus, "fetchbox.jobs.control").running() as controls:
            controls.held("job-1")  # "cancelled"
    """

    def __init__(
        self, bus: Bus, topic: str, on_change: Callable[[str, Held, int], Awaitable[object]] = _ignore
    ) -> None:
        """`on_change` is awaited with the job, the decision, and its time in milliseconds."""
        self._bus = bus
        self._topic = topic
        self._on_change = on_change
        self._words: dict[str, Word] = {}
        self._next = 0

    def word(self, job_id: str) -> Word | None:
        return self._words.get(job_id)

    def held(self, job_id: str, control_ms: int = 0) -> Held:
        """Return whether a job is cancelled or paused. `control_ms` is that of a task (`publishing.CONTROL_MS`): a
        cancellation does not hold for a task that was published after it, though this process may not have read yet
        that the cancellation was lifted."""
        word = self._words.get(job_id)
        if word is None or (word.held == "cancelled" and word.at_ms < control_ms):
            return ""
        return word.held

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Controls]:
        """Read the stream to its end before this begins, and follow it until it ends. Raises BusError."""
        try:
            async with contextlib.aclosing(self._bus.read(self._topic)) as messages:
                async for stored in messages:
                    await self._take([stored])
        except Unsupported:
            log.info("jobs cannot be cancelled or paused: this engine keeps no log")
            yield self
            return
        follower = Follower(self._bus, self._topic, 0, lambda: self._next, self._take)
        following = asyncio.create_task(follower.run())
        try:
            yield self
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    async def _take(self, batch: Sequence[Stored]) -> None:
        for stored in batch:
            if (found := self._decoded(stored)) is not None:
                await self._note(*found)
            self._next = stored.offset + 1

    def _decoded(self, stored: Stored) -> tuple[str, Word] | None:
        try:
            status = decode(JobStatus, stored.data)
        except MalformedMessage as error:
            log.warning("a message on %s is left out: %s", self._topic, error)
            return None
        held = WORDS.get(status.state)
        if held is None or not 0 < len(status.job_id) <= NAME_CHARS_MAX:
            log.warning("a message on %s is left out: it is no decision about a job", self._topic)
            return None
        # By the clock of the engine, which is the same for all that read it, and at every start.
        latest_ms = (stored.published_ms or now_ms()) + CLOCKS_DIFFER_MS
        return status.job_id, Word(min(status.timestamp_ms, latest_ms), held)

    async def _note(self, job_id: str, word: Word) -> None:
        known = self._words.get(job_id)
        if known is not None and known.at_ms > word.at_ms:
            return
        # Before others are told of it: a row of the ledger that is made meanwhile has it from here.
        self._words.pop(job_id, None)
        self._words[job_id] = word
        await self._on_change(job_id, word.held, word.at_ms)
        if len(self._words) > DECISIONS_MAX:
            del self._words[next(iter(self._words))]
