"""What is done with one task, wherever it runs: stored and told of, or buried, or given back to wait elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from typing import Any, TypeAlias

import msgspec
from yarl import URL

from slipstream.bus import Bus
from slipstream.handling import note
from slipstream.jobs.burials import Burials
from slipstream.jobs.clock import now_ms
from slipstream.jobs.controls import Controls, Held, Word
from slipstream.jobs.download.fetch import Fetched, Fetcher
from slipstream.jobs.download.hosts import Crowded
from slipstream.jobs.download.lanes import Lane
from slipstream.jobs.download.proxies import Pools
from slipstream.jobs.download.spool import Spool
from slipstream.jobs.errors import MalformedMessage
from slipstream.jobs.failure import Code, TaskFailed
from slipstream.jobs.given_back import Past
from slipstream.jobs.handed import Handed
from slipstream.jobs.ledger.telling import DOWNLOADED, RETRY, STARTED, STORED, started_fields
from slipstream.jobs.messages import DownloadTask, LogLevel, decode_task
from slipstream.jobs.metrics import metrics_in
from slipstream.jobs.plan import Plan, Planner
from slipstream.jobs.progress import Transfers
from slipstream.jobs.reporter import Reporter
from slipstream.jobs.settings import JobSettings
from slipstream.jobs.storage import StorageFailed
from slipstream.spans import NOTHING, Attribute, continued, describe, is_looked_at, is_trace_id, mark_failed, span

log = logging.getLogger(__name__)

TRACER = "slipstream.jobs"

CANCELLED = "CANCELLED"
"""The code of a task that was not done because its job was cancelled. It is no dead letter."""
PAUSED = "its job is paused"
PAUSED_MS_MIN = 10_000
PAUSED_MS_MAX = 300_000
"""Shortest and longest time until a task of a paused job is looked at again: as long as the job is paused by then, so
the time doubles."""
THROTTLED_S_MAX = 600.0
"""How long a task waits in a worker for a host that asks it to wait again and again, in seconds. After that it waits in
the stream: its lease does not last for ever, and a delivery that loses it counts."""
ATTEMPT_MAX = 1_000_000
"""What a stranger says were made: there is room for ours above it."""

EXHAUSTED = "delivered {} times with an attempt or the death of a worker in it, and never done (JOBS_MAX_DELIVERIES)"


class Ended(msgspec.Struct, frozen=True, tag=True):
    """Its end is safe in the streams: it is not to be handed out again."""

    code: str = ""
    """Why it is a dead letter; "" if it is stored."""
    size: int = 0
    """Of what was stored."""
    took_s: float = 0.0


class GivenBack(msgspec.Struct, frozen=True, tag=True):
    """The task is to be delivered again, later: here it would keep others out."""

    why: str
    delay_ms: int
    past: Past
    """The attempts at the download so far."""
    is_counted: bool = True
    """Whether an attempt failed since it was delivered; waiting for a host is none."""


Outcome: TypeAlias = Ended | GivenBack


class TaskRunner:
    """Any number of tasks at a time. It takes nothing from the bus and acks nothing: that is for who runs it.

    Example:
        async with Fetcher(settings) as fetcher, Reporter(bus, logs).running() as reporter:
            runner = TaskRunner(bus, settings, planner, fetcher, reporter, Burials(bus, dlq, reporter))
            outcome = await runner.run(handed(message))
    """

    def __init__(
        self,
        bus: Bus,
        settings: JobSettings,
        planner: Planner,
        fetcher: Fetcher,
        reporter: Reporter,
        burials: Burials,
    ) -> None:
        self._settings = settings
        self._planner = planner
        self._fetcher = fetcher
        self._reporter = reporter
        self._burials = burials
        self._metrics = metrics_in(bus.registry)
        self.controls: Controls | None = None
        """The jobs that operators hold; None where the caller looks at that itself."""
        self.transfers: Transfers | None = None
        """The downloads under way of this worker; None where their progress is not reported."""
        self._under_way: dict[str, dict[asyncio.Task[Any], int]] = {}
        """By job, the tasks under way, each with its `control_ms`."""
        self._stopped: set[asyncio.Task[Any]] = set()

    async def stop_cancelled(self, job_id: str, held: Held, at_ms: int) -> None:
        """Cancel the downloads under way of a job that was cancelled."""
        for task, control_ms in self._under_way.get(job_id, {}).items() if held == "cancelled" else ():
            if control_ms <= at_ms and task not in self._stopped:
                self._stopped.add(task)
                task.cancel()

    async def run(self, handed: Handed) -> Outcome:
        """Raises BusError where its end cannot be told: then it has none."""
        began_at = time.perf_counter()
        try:
            task = decode_task(handed.data)
        except MalformedMessage as error:
            await self._burials.bury_malformed(handed, error)
            return Ended(Code.SYSTEM_MALFORMED_TASK)
        note(jobId=task.job_id, resourceId=task.resource_id, attempt=handed.attempt)
        if (held := self._held(task.job_id, handed)) == "paused":
            return GivenBack(PAUSED, self._paused_ms(task.job_id), handed.past, is_counted=False)
        if held == "cancelled":
            return self._cancelled()
        current = asyncio.current_task()
        assert current is not None, "it is awaited in a task"
        under_way = self._under_way.setdefault(task.job_id, {})
        under_way[current] = handed.control_ms
        try:
            with _span_of(task, handed) as active:
                outcome = await self._run(handed, task, began_at, active)
        except asyncio.CancelledError:
            if current not in self._stopped or current.uncancel():
                raise
            return self._cancelled()
        finally:
            self._stopped.discard(current)
            del under_way[current]
            if not under_way:
                self._under_way.pop(task.job_id, None)
        if isinstance(outcome, Ended):
            self._metrics.seconds.observe(outcome.took_s)
        return outcome

    def _held(self, job_id: str, handed: Handed) -> Held:
        return self.controls.held(job_id, handed.control_ms) if self.controls is not None else ""

    def _paused_ms(self, job_id: str) -> int:
        return paused_ms(self.controls.word(job_id) if self.controls is not None else None)

    def _cancelled(self) -> Ended:
        self._metrics.tasks.labels("cancelled", "").inc()
        return Ended(CANCELLED)

    async def _run(self, handed: Handed, task: DownloadTask, began_at: float, active: Any) -> Outcome:
        failed = max(handed.past.failed, min(task.attempt, ATTEMPT_MAX))
        attempts = _Attempts(failed, handed.past.throttled_ms)
        code, size = "", 0
        try:
            size = await self._work(handed, task, attempts, began_at)
        except TaskFailed as failure:
            mark_failed(active, str(failure))
            await self._burials.bury(handed, task, failure, attempts.made)
            code = failure.code
        except _Wait as wait:
            describe(active, jobs__given_back=wait.why)
            if self.transfers is not None:
                self.transfers.gave_back(task, host_named(task.url), wait.pause_s)
            past = Past(attempts.failed, attempts.throttled_ms)
            return GivenBack(wait.why, round(wait.pause_s * 1000), past, attempts.failed > attempts.failed_before)
        return Ended(code, size, time.perf_counter() - began_at)

    async def _work(self, handed: Handed, task: DownloadTask, attempts: _Attempts, began_at: float) -> int:
        """Returns how many bytes were stored."""
        if handed.attempt > self._settings.max_deliveries:
            raise TaskFailed(Code.SYSTEM_EXHAUSTED, EXHAUSTED.format(handed.attempt - 1))
        plan = self._planner.plan(task)
        if handed.attempt > 1 or handed.is_repeated:
            await plan.storage.sweep(plan.key)
        with Spool(self._settings, plan.checksum) as spool, self._following(task, spool):
            fetched = await self._download(handed, task, plan, spool, attempts)
            mime = fetched.mime or task.attributes.mime_hint
            self._reporter.mention(
                task,
                DOWNLOADED,
                f"downloaded {spool.size} bytes",
                {"status": fetched.status, "bytes": spool.size, "url": fetched.url, "redirects": fetched.redirects},
            )
            await self._store(task, plan, spool, mime)
            await self._reporter.tell(
                task,
                STORED,
                f"stored {spool.size} bytes as {plan.key}",
                {
                    "key": plan.key,
                    "storage": plan.storage.name,
                    "bytes": spool.size,
                    "sha256": spool.sha256,
                    "mime": mime,
                    "attempts": attempts.made,
                    "duration_ms": round((time.perf_counter() - began_at) * 1000),
                },
            )
            self._metrics.bytes.inc(spool.size)
            self._metrics.stored.inc()
            return spool.size

    def _following(self, task: DownloadTask, spool: Spool) -> contextlib.AbstractContextManager[None]:
        return NOTHING if self.transfers is None else self.transfers.following(task, spool, host_named(task.url))

    # Downloading

    async def _download(
        self, handed: Handed, task: DownloadTask, plan: Plan, spool: Spool, attempts: _Attempts
    ) -> Fetched:
        """Make attempts until one succeeds. Raises TaskFailed after the last one, and _Wait to wait in the stream."""
        lane = Lane(task.tenant, task.job_id)
        while True:
            attempts.is_under_way = False
            try:
                return await self._attempt(handed, task, plan, spool, attempts, lane)
            except Crowded as crowded:
                attempts.is_under_way = False  # not an attempt, even if a redirect led here: no server has failed
                raise _Wait(str(crowded), crowded.delay_s) from crowded
            except TaskFailed as failure:
                if failure.is_throttled and self._is_patient(attempts):
                    attempts.throttled += 1
                    delay_s = self._fetcher.hosts.delay_s(host_named(task.url))
                    self._mention_wait(task, failure, attempts.made, delay_s)
                    now = time.monotonic()
                    attempts.throttled_since = attempts.throttled_since or now
                    if now - attempts.throttled_since >= THROTTLED_S_MAX:
                        raise _Wait(str(failure), delay_s) from failure
                    continue
                attempts.throttled_since = 0.0
                if failure.is_retryable and self._has_progress(spool, attempts):
                    self._mention_retry(task, failure, attempts.made, self._settings.retry_base_ms / 1000)
                    await self._rest(task, self._settings.retry_base_ms / 1000, str(failure))
                    continue
                attempts.fail()
                if not failure.is_retryable or attempts.failed >= self._settings.max_attempts:
                    raise
                pause_s = self._pause_s(failure, attempts.failed)
                self._mention_retry(task, failure, attempts.failed, pause_s)
                if failure.code == Code.DOWNLOAD_CHECKSUM:
                    await spool.start_anew()
                await self._rest(task, pause_s, str(failure))

    def _has_progress(self, spool: Spool, attempts: _Attempts) -> bool:
        """Whether the attempt brought bytes that the next one goes on after. Such an attempt is not used up, as long as
        all of them together keep to JOBS_TOTAL_TIMEOUT_MS."""
        if not spool.validator or spool.size <= attempts.furthest:
            return False
        attempts.furthest = spool.size
        return (time.monotonic() - attempts.began_at) * 1000 < self._settings.total_timeout_ms

    def _is_patient(self, attempts: _Attempts) -> bool:
        now = now_ms()
        attempts.throttled_ms = attempts.throttled_ms or now
        return now < attempts.throttled_ms + self._settings.host_patience_ms

    async def _rest(self, task: DownloadTask, pause_s: float, why: str) -> None:
        """Wait for the next attempt here, or raise _Wait if that takes too long or others need the room."""
        if pause_s > self._settings.hold_ms / 1000:
            raise _Wait(why, pause_s)
        try:
            await self._fetcher.hosts.rest(host_named(task.url), pause_s)
        except Crowded as crowded:
            raise _Wait(why, crowded.delay_s) from crowded

    async def _attempt(
        self, handed: Handed, task: DownloadTask, plan: Plan, spool: Spool, attempts: _Attempts, lane: Lane
    ) -> Fetched:
        proxy = Pools.pick(plan.proxies, attempts.failed + attempts.throttled + 1)

        def begin() -> None:
            """At its first turn: until then the task only waits, and its job has not started."""
            if self._held(task.job_id, handed) == "paused":
                raise _Wait(PAUSED, self._paused_ms(task.job_id) / 1000)
            attempts.is_under_way = True
            note(attempt=attempts.made)
            if not attempts.is_told:
                attempts.is_told = True
                attempts.began_at = time.monotonic()
                self._reporter.mention(task, STARTED, "started", started_fields(task))

        fetching = self._fetcher.fetch(
            task.url,
            plan.headers,
            spool,
            proxy=proxy,
            lane=lane,
            is_begun=attempts.is_told,
            on_turn=begin,
            decode=plan.decode,
        )
        if not is_looked_at():
            fetched = await fetching
            spool.verify()
            return fetched
        # The host alone: an address may have secrets in it.
        about = {**_about(task), "jobs.attempt": attempts.failed + 1, "server.address": host_named(task.url)}
        with span("download attempt", TRACER, about, kind="client") as active:
            fetched = await fetching
            describe(active, http__response__status_code=fetched.status, jobs__bytes=spool.size)
            spool.verify()
            return fetched

    def _pause_s(self, failure: TaskFailed, attempt: int) -> float:
        """Doubling, with a random part, so that those who failed together do not come again together; and as long as
        the server has asked for."""
        settings = self._settings
        backoff_s: float = min(settings.retry_base_ms * 2 ** min(attempt - 1, 32), settings.retry_longest_ms) / 1000
        asked_s = min(failure.retry_after_s or 0.0, settings.retry_after_max_ms / 1000)
        return max(backoff_s * (1 + random.random() / 2), asked_s)

    def _mention_wait(self, task: DownloadTask, failure: TaskFailed, attempt: int, pause_s: float) -> None:
        """Log an answer that uses up no attempt."""
        self._mention_again(
            task, failure, attempt, f"the host asked to wait; the next request is in {pause_s:.1f} s: {failure.message}"
        )

    def _mention_retry(self, task: DownloadTask, failure: TaskFailed, attempt: int, pause_s: float) -> None:
        self._mention_again(
            task, failure, attempt, f"attempt {attempt} failed, the next is in {pause_s:.1f} s: {failure.message}"
        )

    def _mention_again(self, task: DownloadTask, failure: TaskFailed, attempt: int, text: str) -> None:
        self._metrics.retries.labels(failure.code).inc()
        fields = {"code": failure.code, "attempts": attempt}
        self._reporter.mention(task, RETRY, text, fields, LogLevel.LOG_LEVEL_WARN)

    # Storing

    async def _store(self, task: DownloadTask, plan: Plan, spool: Spool, mime: str) -> None:
        """With attempts of its own: what was downloaded is there, and need not be again."""
        settings = self._settings
        for attempt in range(1, settings.upload_attempts + 1):
            with _span_of_store(task, plan, attempt) as active:
                failure = await self._put(plan, spool, mime)
                if failure is not None:
                    mark_failed(active, str(failure))
            if failure is None:
                return
            if not failure.is_retryable or attempt == settings.upload_attempts:
                raise failure
            pause_s = self._pause_s(failure, attempt)
            self._mention_retry(task, failure, attempt, pause_s)
            await asyncio.sleep(pause_s)

    async def _put(self, plan: Plan, spool: Spool, mime: str) -> TaskFailed | None:
        timeout_ms = self._settings.upload_timeout_ms
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await plan.storage.put(plan.key, spool.content(), mime=mime, metadata=plan.metadata)
        except TimeoutError:
            text = f"{plan.key} was not stored in {timeout_ms} ms"
            return TaskFailed(Code.UPLOAD_TIMEOUT, text, is_retryable=True)
        except StorageFailed as error:
            code = Code.UPLOAD_DENIED if error.is_denied else Code.UPLOAD_FAILED
            return TaskFailed(code, str(error), is_retryable=not error.is_denied)
        return None


def _span_of(task: DownloadTask, handed: Handed) -> contextlib.AbstractContextManager[Any]:
    if not is_looked_at():
        return NOTHING
    known = task.trace_id if is_trace_id(task.trace_id) else None
    about = {**_about(task), "jobs.delivery": handed.attempt}
    return span("task", TRACER, about, traceparent=continued(handed.traceparent, known), kind="consumer")


def _span_of_store(task: DownloadTask, plan: Plan, attempt: int) -> contextlib.AbstractContextManager[Any]:
    if not is_looked_at():
        return NOTHING
    about = {**_about(task), "jobs.attempt": attempt, "jobs.key": plan.key, "jobs.storage": plan.storage.name}
    return span("store", TRACER, about, kind="client")


def _about(task: DownloadTask) -> dict[str, Attribute]:
    return {"jobs.job_id": task.job_id, "jobs.resource_id": task.resource_id, "jobs.type": task.job_type}


class _Wait(Exception):
    """Out of the depths of an attempt: the task is to be given back."""

    def __init__(self, why: str, pause_s: float) -> None:
        super().__init__(why)
        self.why = why
        self.pause_s = pause_s


class _Attempts:
    """The attempts at a task."""

    __slots__ = (
        "began_at",
        "failed",
        "failed_before",
        "furthest",
        "is_told",
        "is_under_way",
        "throttled",
        "throttled_ms",
        "throttled_since",
    )

    def __init__(self, failed: int, throttled_ms: int) -> None:
        self.failed = failed
        self.failed_before = failed
        """How many had failed when it was delivered."""
        self.throttled_ms = throttled_ms
        """When a host first asked it to wait, in milliseconds; 0: none did."""
        self.throttled_since = 0.0
        """Time of the monotonic clock since when hosts only asked it to wait; 0: the last answer was another."""
        self.began_at = 0.0
        self.furthest = 0
        """Bytes that some attempt has left for the next one to go on after."""
        self.throttled = 0
        """Attempts that a host answered with a request to wait: they are not used up."""
        self.is_under_way = False
        self.is_told = False
        """The start was reported."""

    @property
    def made(self) -> int:
        return self.failed + self.is_under_way

    def fail(self) -> None:
        self.failed += 1
        self.is_under_way = False


def paused_ms(word: Word | None) -> int:
    """Return in how many milliseconds a task of a paused job is to be looked at again."""
    paused_for_ms = now_ms() - word.at_ms if word is not None else 0
    return max(PAUSED_MS_MIN, min(paused_for_ms, PAUSED_MS_MAX))


def host_named(url: str) -> str:
    """By what turns are given out; "" for what is no URL."""
    try:
        return (URL(url).raw_host or "").rstrip(".")
    except ValueError:
        return ""
