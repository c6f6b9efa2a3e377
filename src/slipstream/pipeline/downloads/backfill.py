"""A backfill: all rows of a file become jobs, a few at a time, until each row is stored or a dead letter.

What was submitted is known to the service, by the idempotency key that each slice of the file has: whoever begins again
submits it again, and gets the same jobs, wherever they are by then. Nothing else is kept.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TypeAlias

import msgspec

from slipstream.jobs.client import JobsClient, ServiceUnreachable
from slipstream.jobs.errors import InvalidJobs
from slipstream.jobs.ledger import JobSnapshot
from slipstream.jobs.settings import JobSettings
from slipstream.pipeline.downloads.rows import Rows
from slipstream.pipeline.downloads.slices import Slice, slices_of
from slipstream.pipeline.downloads.submission import Refusal, SubmissionAnswer, SubmissionOrder, Submitted
from slipstream.threads import DaemonThreads

log = logging.getLogger(__name__)

LOOK_S = 0.5
AWAY_S_MAX = 60.0
"""A service that is restarted is waited for."""
REFUSALS_MAX = 20
"""That are shown at the end."""

RunOrders: TypeAlias = Callable[[Sequence[bytes]], list[bytes]]
"""Has SubmissionOrders done on the cluster, each in a task of its own, and returns their answers."""


class Standing(msgspec.Struct, kw_only=True):
    """How far it is. Rows that are in none of the others are left."""

    rows: int
    submitted: int = 0
    """Rows that are in jobs."""
    stored: int = 0
    failed: int = 0
    refused: int = 0
    """That could be no resource."""
    jobs: int = 0
    refusals: list[Refusal] = []
    """The first of them."""

    @property
    def ended(self) -> int:
        return self.stored + self.failed + self.refused

    @property
    def is_whole(self) -> bool:
        """Every row is stored."""
        return self.stored == self.rows


class Source(msgspec.Struct, frozen=True):
    """What is to be done, and for whom."""

    rows: Rows
    job_type: str
    tenant: str
    service: str
    """Its address, as executors reach it."""
    token: str


class Backfill:
    """Example:
    backfill = Backfill(settings, source, run_orders, slots=8)
    standing = await backfill.run(client, print)
    """

    def __init__(self, settings: JobSettings, source: Source, run_orders: RunOrders, slots: int) -> None:
        """Reads the file once, for its digest and its length. Raises InvalidJobs."""
        self._settings = settings
        self._source = source
        self._run_orders = run_orders
        self._slots = slots
        self._digest = source.rows.digest()
        self.standing = Standing(rows=source.rows.count())
        self._open: dict[str, JobSnapshot | None] = {}
        """Jobs that have not ended, as they were last seen."""
        self._is_submitted = False
        """All of it."""
        self._room = asyncio.Event()
        self._threads = DaemonThreads(1, "slipstream-backfill")

    async def run(self, client: JobsClient, show: Callable[[Standing], None]) -> Standing:
        """Returns when every row has come to its end. Cancelled at any time, it can be begun again. Raises InvalidJobs,
        ServiceUnreachable, and what Spark raises."""
        submitting = asyncio.create_task(self._submit_all())
        watching = asyncio.create_task(self._watch(client, show))
        try:
            done, _ = await asyncio.wait({submitting, watching}, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()
        finally:
            for task in (submitting, watching):
                task.cancel()
            await asyncio.gather(submitting, watching, return_exceptions=True)
            self._threads.close()
        return self.standing

    # Submitting

    async def _submit_all(self) -> None:
        source = self._source
        slices = slices_of(source.rows, self._settings.backfill_rows, source.job_type, source.tenant)
        while batch := list(islice(slices, await self._room_for())):
            await self._submit(batch)
        self._is_submitted = True

    async def _room_for(self) -> int:
        """How many jobs may be submitted, when it is half of what may be open: each time costs a job of Spark."""
        ahead = self._settings.backfill_ahead
        while ahead - len(self._open) < max(1, ahead // 2):
            self._room.clear()
            await self._room.wait()
        return ahead - len(self._open)

    async def _submit(self, batch: list[Slice]) -> None:
        while batch:
            orders = [self._order(part) for part in _parts(batch, self._slots)]
            answers = await self._threads.call(self._run_orders, orders)
            batch, why = [], ""
            for answer in (msgspec.msgpack.decode(data, type=SubmissionAnswer) for data in answers):
                if answer.trouble:
                    raise InvalidJobs(f"{answer.trouble}; every machine of the cluster has to see the file there")
                for submitted in answer.submitted:
                    if submitted.left:
                        batch.append(submitted.slice)
                        why = submitted.left
                    else:
                        self._note(submitted)
            if batch:
                log.warning("%d jobs are not submitted yet, trying on: %s", len(batch), why)

    def _order(self, part: list[Slice]) -> bytes:
        source = self._source
        path = str(source.rows.path.absolute())
        patience_ms = self._settings.spark_shift_ms
        return msgspec.msgpack.encode(
            SubmissionOrder(path, self._digest, part, source.service, source.token, patience_ms)
        )

    def _note(self, submitted: Submitted) -> None:
        standing = self.standing
        standing.refused += submitted.refused
        standing.refusals += submitted.refusals[: REFUSALS_MAX - len(standing.refusals)]
        if submitted.job_id:
            standing.jobs += 1
            standing.submitted += submitted.resources
            self._open[submitted.job_id] = None

    # Watching

    async def _watch(self, client: JobsClient, show: Callable[[Standing], None]) -> None:
        away_since: float | None = None
        while self._open or not self._is_submitted:
            try:
                await self._look(client)
                away_since = None
            except ServiceUnreachable as error:
                away_since = away_since or time.monotonic()
                if time.monotonic() - away_since > AWAY_S_MAX:
                    raise
                log.warning("the service does not answer, waiting for it: %s", error)
            show(self.standing)
            await asyncio.sleep(LOOK_S)

    async def _look(self, client: JobsClient) -> None:
        for job_id, before in list(self._open.items()):
            job = await client.job(job_id, resources=False)
            self._count(before, job)
            if job.is_ended:
                del self._open[job_id]
                self._room.set()
            else:
                self._open[job_id] = job

    def _count(self, before: JobSnapshot | None, now: JobSnapshot) -> None:
        standing = self.standing
        standing.stored += now.resources_completed - (before.resources_completed if before else 0)
        standing.failed += now.resources_failed - (before.resources_failed if before else 0)


def _parts(batch: list[Slice], count: int) -> Iterator[list[Slice]]:
    """Each a stretch of the file."""
    size = -(-len(batch) // count)
    return (batch[first : first + size] for first in range(0, len(batch), size))
