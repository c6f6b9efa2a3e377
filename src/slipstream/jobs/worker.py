"""A worker: takes tasks, downloads and stores what they name, and tells what became of it.

A task is acked when its end is safe in the streams, and not before. Whoever dies leaves it to another, who does it
again: to store a resource twice leaves one object, and the ledger counts it once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import AsyncIterator

from yarl import URL

from slipstream.bus import Bus, Message, Retry
from slipstream.jobs.burials import Burials
from slipstream.jobs.config import JobConfig
from slipstream.jobs.download.fetch import Fetched, Fetcher
from slipstream.jobs.download.proxies import Pools
from slipstream.jobs.download.spool import Spool
from slipstream.jobs.errors import MalformedMessage
from slipstream.jobs.failure import Code, TaskFailed
from slipstream.jobs.groups import worker_options
from slipstream.jobs.ledger.telling import DOWNLOADED, RETRY, STARTED, STORED, started_fields
from slipstream.jobs.messages import (
    DownloadTask,
    LogLevel,
    decode_task,
)
from slipstream.jobs.metrics import metrics_in
from slipstream.jobs.plan import Plan, Planner
from slipstream.jobs.provision import ensure_topics
from slipstream.jobs.reporter import Reporter
from slipstream.jobs.settings import JobSettings
from slipstream.jobs.storage import StorageFailed, Storages
from slipstream.jobs.streams import WORKERS, streams

log = logging.getLogger(__name__)

GIVEN_BACK_MAX = 10_000
ATTEMPT_MAX = 1_000_000
"""What a stranger says were made: there is room for ours above it."""

EXHAUSTED = "handed out {} times, and never done: workers died of it, or its host kept asking to wait"


class Worker:
    """Any number of them share the tasks.

    Example:
        async with open_bus() as bus, Worker(settings, config, storages).running(bus):
            await bus.until_stopped()
    """

    def __init__(self, settings: JobSettings, config: JobConfig, storages: Storages) -> None:
        """Raises InvalidJobs."""
        self._settings = settings
        self._planner = Planner(config, storages)
        self._streams = streams(settings.namespace)
        self._given_back: dict[str, int] = {}
        self._fetcher: Fetcher
        self._reporter: Reporter
        self._burials: Burials

    @contextlib.asynccontextmanager
    async def running(self, bus: Bus) -> AsyncIterator[Worker]:
        settings = self._settings
        self._metrics = metrics_in(bus.registry)
        reporter = Reporter(bus, self._streams.logs.topic)
        async with Fetcher(settings) as self._fetcher, reporter.running() as self._reporter:
            self._burials = Burials(bus, self._streams.dlq.topic, self._reporter)
            await ensure_topics(bus, self._streams)
            topic = self._streams.tasks.topic
            subscription = await bus.subscribe(topic, WORKERS, self._take, worker_options(settings))
            try:
                yield self
            finally:
                await subscription.close(bus.settings.drain_timeout_ms / 1000)

    async def _take(self, message: Message) -> None:
        began_at = time.perf_counter()
        try:
            task = decode_task(message.data)
        except MalformedMessage as error:
            await self._burials.bury_malformed(message, error)
            return
        before = self._given_back.pop(message.id, 0)
        attempts = _Attempts(max(before, min(task.attempt, ATTEMPT_MAX)))
        try:
            await self._work(message, task, attempts, began_at)
        except TaskFailed as failure:
            await self._burials.bury(message, task, failure, attempts.made)
        except Retry:
            self._remember(message, attempts)
            raise
        self._metrics.seconds.observe(time.perf_counter() - began_at)

    async def _work(self, message: Message, task: DownloadTask, attempts: _Attempts, began_at: float) -> None:
        if message.attempt > self._settings.max_deliveries:
            raise TaskFailed(Code.SYSTEM_EXHAUSTED, EXHAUSTED.format(message.attempt - 1))
        self._reporter.mention(task, STARTED, "started", started_fields(task))
        plan = self._planner.plan(task)
        if message.attempt > 1:
            await plan.storage.sweep(plan.key)
        with Spool(self._settings, plan.checksum) as spool:
            fetched = await self._download(task, plan, spool, attempts)
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

    def _remember(self, message: Message, attempts: _Attempts) -> None:
        """How many were made at a task that is given back, for when it comes again: here, if we are the only worker.
        Another begins to count anew, and in the end JOBS_MAX_DELIVERIES holds."""
        self._given_back[message.id] = attempts.made
        if len(self._given_back) > GIVEN_BACK_MAX:
            del self._given_back[next(iter(self._given_back))]

    # Downloading

    async def _download(self, task: DownloadTask, plan: Plan, spool: Spool, attempts: _Attempts) -> Fetched:
        """Attempt after attempt. Raises TaskFailed when there is no other, and Retry to wait elsewhere than here."""
        while True:
            if self._fetcher.hosts.is_any_held:
                self._wait_elsewhere(self._fetcher.hosts.delay_s(_host(task.url)), "its host asked to wait")
            attempts.made += 1
            proxy = Pools.pick(plan.proxies, attempts.made)
            try:
                fetched = await self._fetcher.fetch(task.url, plan.headers, spool, proxy=proxy)
                spool.verify()
            except TaskFailed as failure:
                pause_s = self._pause_s(failure, attempts.made)
                if not failure.is_retryable or attempts.made >= self._settings.max_attempts:
                    raise
                self._mention_retry(task, failure, attempts, pause_s)
                if failure.code == Code.DOWNLOAD_CHECKSUM:
                    await spool.start_anew()
                self._wait_elsewhere(pause_s, str(failure))
                await asyncio.sleep(pause_s)
            else:
                return fetched

    def _pause_s(self, failure: TaskFailed, attempt: int) -> float:
        """Doubling, with a random part, so that those who failed together do not come again together; and as long as
        the server has asked for."""
        settings = self._settings
        backoff_s: float = min(settings.retry_base_ms * 2 ** min(attempt - 1, 32), settings.retry_longest_ms) / 1000
        asked_s = min(failure.retry_after_s or 0.0, settings.retry_after_max_ms / 1000)
        return max(backoff_s * (1 + random.random() / 2), asked_s)

    def _wait_elsewhere(self, pause_s: float, why: str) -> None:
        """A task that has to wait for long is given back: here it would keep others out."""
        if pause_s > self._settings.hold_ms / 1000:
            raise Retry(why, delay_ms=round(pause_s * 1000))

    def _mention_retry(self, task: DownloadTask, failure: TaskFailed, attempts: _Attempts, pause_s: float) -> None:
        self._metrics.retries.labels(failure.code).inc()
        self._reporter.mention(
            task,
            RETRY,
            f"attempt {attempts.made} failed, the next is in {pause_s:.1f} s: {failure.message}",
            {"code": failure.code, "attempts": attempts.made},
            LogLevel.LOG_LEVEL_WARN,
        )

    # Storing

    async def _store(self, task: DownloadTask, plan: Plan, spool: Spool, mime: str) -> None:
        """With attempts of its own: what was downloaded is there, and need not be again."""
        settings = self._settings
        for attempt in range(1, settings.upload_attempts + 1):
            failure = await self._put(plan, spool, mime)
            if failure is None:
                return
            if not failure.is_retryable or attempt == settings.upload_attempts:
                raise failure
            pause_s = self._pause_s(failure, attempt)
            self._mention_retry(task, failure, _Attempts(attempt), pause_s)
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


class _Attempts:
    """How many were made at a task."""

    __slots__ = ("made",)

    def __init__(self, made: int) -> None:
        self.made = made


def _host(url: str) -> str:
    try:
        return (URL(url).raw_host or "").rstrip(".")
    except ValueError:
        return ""
