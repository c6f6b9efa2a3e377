"""Tells on `jobs.status` how each job stands, and its handler that it has ended."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Sequence

from slipstream.bus import Bus, BusError
from slipstream.jobs.errors import JobsError
from slipstream.jobs.handler import Handlers, answer
from slipstream.jobs.ledger import JobSnapshot, Ledger
from slipstream.jobs.messages import encode
from slipstream.jobs.publishing import LEDGER, attributes_of
from slipstream.jobs.settings import JobSettings
from slipstream.jobs.streams import streams
from slipstream.spans import NOTHING, span

log = logging.getLogger(__name__)

PAUSE_S_MAX = 10.0
TRACER = "slipstream.jobs"
SPANS_MAX = 10_000
"""Jobs whose spans are remembered; the status of others is in no trace."""


class Teller:
    """One JobStatus for all that has happened to a job in a while, and one at once when it has ended.

    The ledger is where a job is counted, and only one process has it: workers tell what they did in their logs, and
    cannot know what others have done. That a change is still to be told is in the ledger, with the change.
    """

    def __init__(self, bus: Bus, ledger: Ledger, handlers: Handlers, settings: JobSettings) -> None:
        self._bus = bus
        self._ledger = ledger
        self._handlers = handlers
        self._topic = streams(settings.namespace).status.topic
        self._interval_s = settings.status_interval_ms / 1000
        self._changed: dict[str, JobSnapshot] = {}
        self._spans: dict[str, str] = {}
        """By job: in which the last has happened to it, where traces are looked at."""
        self._ended = asyncio.Event()
        self._woken = asyncio.Event()
        self._may_finalize = asyncio.Event()

    def note(self, jobs: Sequence[JobSnapshot]) -> None:
        """They are not as they were."""
        for job in jobs:
            known = self._changed.get(job.job_id)
            if known is None or known.updated_ms <= job.updated_ms:
                self._changed[job.job_id] = job
            if job.is_ended:
                self._ended.set()
        self._woken.set()

    def note_span(self, job_id: str, traceparent: str) -> None:
        """Something has happened to this job, in this span."""
        self._spans.pop(job_id, None)
        self._spans[job_id] = traceparent
        while len(self._spans) > SPANS_MAX:
            del self._spans[next(iter(self._spans))]

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Teller]:
        self.note(self._ledger.untold())
        # A handler may take its time over the end of a job: the status of others does not wait for it.
        tasks = [asyncio.create_task(each) for each in (self._tell_for_ever(), self._finalize_for_ever())]
        try:
            yield self
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            with contextlib.suppress(BusError, JobsError):  # they are told at the next start
                await self._tell_all()

    async def _tell_for_ever(self) -> None:
        pause_s = 0.1
        while True:
            try:
                self._may_finalize.set()
                await self._woken.wait()
                self._woken.clear()
                await self._tell_all()
                pause_s = 0.1
            except Exception as error:  # whatever it is: without this nobody hears of any job any more
                is_bug = not isinstance(error, BusError | JobsError)
                log.warning("the status of jobs cannot be told, trying on: %s", error, exc_info=is_bug)
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, PAUSE_S_MAX)
                with contextlib.suppress(JobsError):
                    self.note(self._ledger.untold())
                self._woken.set()
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._interval_s):
                    await self._ended.wait()
            self._ended.clear()

    async def _tell_all(self) -> None:
        while self._changed:
            changed, self._changed = list(self._changed.values()), {}
            await asyncio.gather(*(self._tell(job) for job in changed))
            await self._ledger.told(changed)

    async def _tell(self, job: JobSnapshot) -> None:
        attributes = {**attributes_of("JobStatus", job.job_id), LEDGER: self._ledger.id}
        about = {"jobs.job_id": job.job_id, "jobs.state": job.state}
        came = self._spans.pop(job.job_id, "") if job.is_ended else self._spans.get(job.job_id, "")
        with span("status", TRACER, about, traceparent=came, kind="producer") if came else NOTHING:
            await self._bus.publish(self._topic, encode(job.status()), attributes, job.job_id)

    async def _finalize_for_ever(self) -> None:
        while True:
            await self._may_finalize.wait()
            self._may_finalize.clear()
            try:
                await self._finalize_all()
            except JobsError as error:
                log.warning("the end of jobs cannot be noted, trying on: %s", error)
                await asyncio.sleep(PAUSE_S_MAX)
                self._may_finalize.set()

    async def _finalize_all(self) -> None:
        for job in self._ledger.unfinalized():
            try:
                await answer(self._handlers.of(job.job_type).finalize_job(job.status()))
            except Exception:
                # Whatever it wanted to do, the job has ended; to try for ever would keep all others waiting.
                log.exception("the handler of %s failed at the end of job %s", job.job_type, job.job_id)
            await self._ledger.finalized(job.job_id)
