"""The progress of downloads that are under way: workers report it, and the service adds it up.

A worker publishes one log per job and second on `jobs.logs` while it downloads something of the job. The service keeps
the newest report of each worker in memory for some seconds: nothing depends on it once the download has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

import msgspec

from slipstream.jobs.clock import now_ms
from slipstream.jobs.ledger.snapshot import JobSnapshot
from slipstream.jobs.ledger.telling import PROGRESS, number_in
from slipstream.jobs.messages import NAME_CHARS_MAX, DownloadTask, JobLog, LogLevel

if TYPE_CHECKING:
    from slipstream.jobs.download.spool import Spool
    from slipstream.jobs.reporter import Reporter

REPORT_EVERY_S = 1.0
FRESH_S = 3.0
"""How long a report counts, in seconds."""
LATE_MS = 60_000
"""Age from which a report is ignored, in milliseconds: the stream is read again at a start, and clocks differ."""
JOBS_MAX = 10_000
"""Jobs whose reports the service keeps."""
WORKERS_MAX = 1_000
"""Workers whose reports the service keeps for one job."""


class Transfers:
    """The downloads under way in a worker.

    Example:
        async with Transfers(reporter).running() as transfers:
            with transfers.following(task, spool):
                await fetcher.fetch(task.url, [], spool)
    """

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._worker = secrets.token_hex(4)
        self._jobs: dict[str, _JobTransfers] = {}
        self._publishing: asyncio.Future[None] | None = None

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Transfers]:
        reporting = asyncio.create_task(self._report_for_ever())
        try:
            yield self
        finally:
            reporting.cancel()
            await asyncio.gather(reporting, return_exceptions=True)

    @contextlib.contextmanager
    def following(self, task: DownloadTask, spool: Spool) -> Iterator[None]:
        """Count the bytes of this spool while the block runs."""
        job = self._jobs.get(task.job_id)
        if job is None:
            job = self._jobs[task.job_id] = _JobTransfers(task)
        job.spools.add(spool)
        try:
            yield
        finally:
            job.spools.discard(spool)
            job.finished += spool.size
            if not job.spools:
                self._jobs.pop(task.job_id, None)

    async def _report_for_ever(self) -> None:
        while True:
            await asyncio.sleep(REPORT_EVERY_S)
            self.report()

    def report(self) -> None:
        """Publish one log for each job with bytes under way, unless the last ones are still being published."""
        if self._publishing is not None and not self._publishing.done():
            return
        for job in self._jobs.values():
            if (fields := job.measured()) is None:
                continue
            text = f"{fields['files']} downloads under way: {fields['bytes']} bytes, {fields['bytes_per_s']} bytes/s"
            about = DownloadTask(job_id=job.task.job_id, tenant=job.task.tenant, trace_id=job.task.trace_id)
            told = {"worker": self._worker, **fields}
            self._publishing = self._reporter.mention(about, PROGRESS, text, told, LogLevel.LOG_LEVEL_DEBUG)


class _JobTransfers:
    """The downloads of one job in this worker."""

    __slots__ = ("_at", "_bytes_per_s", "_received", "finished", "spools", "task")

    def __init__(self, task: DownloadTask) -> None:
        self.task = task
        self.spools: set[Spool] = set()
        self.finished = 0
        """Bytes of the downloads that have ended since the first of those under way began."""
        self._received = 0
        self._at = time.monotonic()
        self._bytes_per_s: float | None = None

    def measured(self) -> dict[str, int] | None:
        """Return the fields of a report; None where nothing has come, or no time has passed."""
        begun = [spool for spool in self.spools if spool.size]
        now = time.monotonic()
        if not begun or now - self._at < REPORT_EVERY_S / 2:
            return None
        received = self.finished + sum(spool.size for spool in begun)
        latest = max(0, received - self._received) / (now - self._at)
        self._bytes_per_s = latest if self._bytes_per_s is None else (self._bytes_per_s + latest) / 2
        self._received, self._at = received, now
        sized = [(spool.size, spool.total) for spool in begun if spool.total is not None and spool.total >= spool.size]
        return {
            "files": len(begun),
            "bytes": sum(spool.size for spool in begun),
            "bytes_per_s": round(self._bytes_per_s),
            "sized": len(sized),
            "expected": sum(total for _, total in sized),
            "left": sum(total - size for size, total in sized),
        }


class _Report(msgspec.Struct, frozen=True):
    at: float
    bytes: int
    bytes_per_s: int
    sized: int
    """Downloads whose length the server has said."""
    expected: int
    """Total length of the sized downloads, in bytes."""
    left: int
    """Bytes of the sized downloads that have not come yet."""


class Progress:
    """The newest reports of all workers, by job."""

    def __init__(self) -> None:
        self._jobs: dict[str, dict[str, _Report]] = {}

    def note(self, log: JobLog) -> None:
        """Take in a report; anything else, and a report of long ago, is ignored."""
        if not 0 < len(log.job_id) <= NAME_CHARS_MAX or log.timestamp_ms < now_ms() - LATE_MS:
            return
        names = ("bytes", "bytes_per_s", "sized", "expected", "left")
        values = [number_in(log.fields, name) for name in names]
        workers = self._jobs.pop(log.job_id, {})
        worker = log.fields.get("worker", "")[:NAME_CHARS_MAX]
        workers.pop(worker, None)
        workers[worker] = _Report(time.monotonic(), *values)
        if len(workers) > WORKERS_MAX:
            del workers[next(iter(workers))]
        self._jobs[log.job_id] = workers  # at the end: the first is the one that was reported longest ago
        while len(self._jobs) > JOBS_MAX or not self._fresh(next(iter(self._jobs))):
            del self._jobs[next(iter(self._jobs))]

    def of(self, job: JobSnapshot) -> JobSnapshot:
        """Return the job with bytes under way, speed and remaining time."""
        reports = [] if job.is_ended else self._fresh(job.job_id)
        if not reports:
            return job
        bytes_per_s = sum(each.bytes_per_s for each in reports)
        return msgspec.structs.replace(
            job,
            bytes_under_way=sum(each.bytes for each in reports),
            bytes_per_s=bytes_per_s,
            remaining_s=_remaining_s(job, reports, bytes_per_s),
        )

    def _fresh(self, job_id: str) -> list[_Report]:
        oldest = time.monotonic() - FRESH_S
        return [each for each in self._jobs.get(job_id, {}).values() if each.at >= oldest]


def _remaining_s(job: JobSnapshot, reports: list[_Report], bytes_per_s: int) -> int | None:
    """Return an estimate: resources of unknown length count as the mean of those whose length is known."""
    sized = sum(each.sized for each in reports)
    known = job.resources_completed + sized
    if not bytes_per_s or not known:
        return None
    mean = (job.bytes_stored + sum(each.expected for each in reports)) / known
    unsized = max(0, job.resources_total - job.resources_completed - job.resources_failed - sized)
    return round((sum(each.left for each in reports) + unsized * mean) / bytes_per_s)
