"""The progress of downloads that are under way: workers report it, and the service adds it up.

A worker publishes one log per job and second on `jobs.logs` while it downloads something of the job, and one every ten
seconds while tasks of the job wait for a host that asked for it. The service keeps the newest report of each worker in
memory for some seconds: nothing depends on it once the download has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import TYPE_CHECKING

import msgspec

from slipstream.jobs.clock import now_ms
from slipstream.jobs.ledger.snapshot import JobSnapshot
from slipstream.jobs.ledger.telling import PROGRESS, number_in
from slipstream.jobs.messages import NAME_CHARS_MAX, DownloadTask, JobLog, LogLevel

if TYPE_CHECKING:
    from slipstream.jobs.download.hosts import Hosts
    from slipstream.jobs.download.spool import Spool
    from slipstream.jobs.reporter import Reporter

REPORT_EVERY_S = 1.0
WAITING_TURNS = 10
"""A worker reports the tasks that wait for a host when they begin to, and then at one turn of so many."""
FRESH_S = 3.0
"""How long a report of downloads under way counts, in seconds."""
WAITING_FRESH_S = 25.0
"""How long a report of tasks that wait for a host counts, in seconds, unless the host may be asked before."""
LATE_MS = 60_000
"""Age from which a report is ignored, in milliseconds: the stream is read again at a start, and clocks differ."""
JOBS_MAX = 10_000
"""Jobs whose reports the service keeps."""
HOST_CHARS_MAX = 253
"""Length of the longest name of a host."""
WORKERS_MAX = 1_000
"""Workers whose reports the service keeps for one job."""


class Transfers:
    """The downloads under way in a worker.

    Example:
        async with Transfers(reporter, fetcher.hosts).running() as transfers:
            with transfers.following(task, spool, "example.org"):
                await fetcher.fetch(task.url, [], spool)
    """

    def __init__(self, reporter: Reporter, hosts: Hosts) -> None:
        self._reporter = reporter
        self._hosts = hosts
        self._worker = secrets.token_hex(4)
        self._jobs: dict[str, _JobTransfers] = {}
        self._away: dict[str, _Away] = {}
        """By job, the tasks that went back to the stream because their host asked to wait."""
        self._turn = 0
        self._reported: set[str] = set()
        """Jobs that had tasks waiting for a host at the last turn."""
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
    def following(self, task: DownloadTask, spool: Spool, host: str) -> Iterator[None]:
        """Count the bytes of this spool while the block runs."""
        job = self._jobs.get(task.job_id)
        if job is None:
            job = self._jobs[task.job_id] = _JobTransfers(task)
        job.spools[spool] = host
        try:
            yield
        finally:
            del job.spools[spool]
            job.finished += spool.size
            if not job.spools:
                self._jobs.pop(task.job_id, None)

    def gave_back(self, task: DownloadTask, host: str, delay_s: float) -> None:
        """Note that a task comes again after the delay; counts where its host has asked to wait."""
        if self._hosts.delay_s(host):
            away = self._away.get(task.job_id)
            if away is None:
                away = self._away[task.job_id] = _Away(task)
                if len(self._away) > JOBS_MAX:
                    del self._away[next(iter(self._away))]
            heapq.heappush(away.hosts.setdefault(host, []), time.monotonic() + delay_s)

    def _waiting(self, job_id: str, held_s: dict[str, float]) -> dict[str, object]:
        """Return the fields of a report about the host for which most tasks of a job wait; none if none does."""
        counts: Counter[str] = Counter()
        if (job := self._jobs.get(job_id)) is not None:
            counts.update(host for spool, host in job.spools.items() if host in held_s and not spool.size)
        if (away := self._away.get(job_id)) is not None:
            counts.update(away.counted(held_s))
            if not away.hosts:
                del self._away[job_id]
        if not counts:
            return {}
        [(host, waiting)] = counts.most_common(1)
        return {"waiting": waiting, "host": host, "until_ms": now_ms() + round(held_s[host] * 1000)}

    async def _report_for_ever(self) -> None:
        while True:
            await asyncio.sleep(REPORT_EVERY_S)
            self.report()

    def report(self) -> None:
        """Publish one log for each job with bytes under way, and at some turns for each job that waits for a host.

        It does nothing while the last ones are still being published.
        """
        if self._publishing is not None and not self._publishing.done():
            return
        is_waiting_turn = self._turn % WAITING_TURNS == 0
        self._turn += 1
        held_s = self._hosts.held_s() if self._jobs or self._away else {}
        reported, self._reported = self._reported, set()
        for job_id, task in {**_tasks(self._away), **_tasks(self._jobs)}.items():
            job = self._jobs.get(job_id)
            measured = job.measured() if job is not None else None
            waiting = self._waiting(job_id, held_s)
            if waiting:
                self._reported.add(job_id)
            if measured is None and not (waiting and (is_waiting_turn or job_id not in reported)):
                continue
            texts = []
            if measured is not None:
                files, speed = measured["files"], measured["bytes_per_s"]
                texts.append(f"{files} downloads under way: {measured['bytes']} bytes, {speed} bytes/s")
            if waiting:
                texts.append(f"tasks that wait for {waiting['host']}, which asked for it: {waiting['waiting']}")
            about = DownloadTask(job_id=job_id, tenant=task.tenant, trace_id=task.trace_id)
            fields: dict[str, object] = {"worker": self._worker, **(measured or {}), **waiting}
            text = "; ".join(texts)
            self._publishing = self._reporter.mention(about, PROGRESS, text, fields, LogLevel.LOG_LEVEL_DEBUG)


class _Away:
    """The tasks of one job that this worker gave back to the stream because their hosts asked to wait."""

    __slots__ = ("hosts", "task")

    def __init__(self, task: DownloadTask) -> None:
        self.task = task
        self.hosts: dict[str, list[float]] = {}
        """By host, a heap of when the tasks come again."""

    def counted(self, held_s: Mapping[str, float]) -> dict[str, int]:
        """Forget the tasks that have come again; return how many are left, by host."""
        now = time.monotonic()
        for host, due in list(self.hosts.items()):
            while due and due[0] <= now:
                heapq.heappop(due)
            if not due or host not in held_s:
                del self.hosts[host]
        return {host: len(due) for host, due in self.hosts.items()}


def _tasks(jobs: Mapping[str, _JobTransfers | _Away]) -> dict[str, DownloadTask]:
    return {job_id: job.task for job_id, job in jobs.items()}


class _JobTransfers:
    """The downloads of one job in this worker."""

    __slots__ = ("_at", "_bytes_per_s", "_received", "finished", "spools", "task")

    def __init__(self, task: DownloadTask) -> None:
        self.task = task
        self.spools: dict[Spool, str] = {}
        """The host of each download."""
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
    host: str
    bytes: int
    bytes_per_s: int
    sized: int
    """Downloads whose length the server has said."""
    expected: int
    """Total length of the sized downloads, in bytes."""
    left: int
    """Bytes of the sized downloads that have not come yet."""
    waiting: int
    """Tasks that wait for the host."""
    until_ms: int
    """When the host may be asked again."""


class Progress:
    """The newest reports of all workers, by job."""

    def __init__(self) -> None:
        self._jobs: dict[str, dict[str, _Report]] = {}

    def note(self, log: JobLog) -> None:
        """Take in a report; anything else, and a report of long ago, is ignored."""
        if not 0 < len(log.job_id) <= NAME_CHARS_MAX or log.timestamp_ms < now_ms() - LATE_MS:
            return
        names = ("bytes", "bytes_per_s", "sized", "expected", "left", "waiting", "until_ms")
        values = [number_in(log.fields, name) for name in names]
        workers = self._jobs.pop(log.job_id, {})
        worker = log.fields.get("worker", "")[:NAME_CHARS_MAX]
        workers.pop(worker, None)
        host = log.fields.get("host", "")[:HOST_CHARS_MAX]
        workers[worker] = _Report(time.monotonic(), host, *values)
        if len(workers) > WORKERS_MAX:
            del workers[next(iter(workers))]
        self._jobs[log.job_id] = workers  # at the end: the first is the one that was reported longest ago
        while len(self._jobs) > JOBS_MAX or not self._fresh(next(iter(self._jobs)), WAITING_FRESH_S):
            del self._jobs[next(iter(self._jobs))]

    def of(self, job: JobSnapshot) -> JobSnapshot:
        """Return the job with bytes under way, speed and remaining time, and with the host that its tasks wait for."""
        if job.is_ended:
            return job
        job = self._with_waiting(job)
        reports = self._fresh(job.job_id, FRESH_S)
        if not reports:
            return job
        bytes_per_s = sum(each.bytes_per_s for each in reports)
        return msgspec.structs.replace(
            job,
            bytes_under_way=sum(each.bytes for each in reports),
            bytes_per_s=bytes_per_s,
            remaining_s=_remaining_s(job, reports, bytes_per_s),
        )

    def _with_waiting(self, job: JobSnapshot) -> JobSnapshot:
        now = now_ms()
        counts: Counter[str] = Counter()
        until: dict[str, int] = {}
        for each in self._fresh(job.job_id, WAITING_FRESH_S):
            if each.waiting and each.until_ms > now:
                counts[each.host] += each.waiting
                until[each.host] = min(each.until_ms, until.get(each.host, each.until_ms))
        if not counts:
            return job
        [(host, waiting)] = counts.most_common(1)
        return msgspec.structs.replace(job, waiting_tasks=waiting, waiting_host=host, waiting_until_ms=until[host])

    def _fresh(self, job_id: str, for_s: float) -> list[_Report]:
        oldest = time.monotonic() - for_s
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
