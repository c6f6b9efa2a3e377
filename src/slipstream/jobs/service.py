"""The service: ingress, operator and their ledger in one process, which may have a worker in it, too."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, Literal

import msgspec

from slipstream.bus import Bus, Unsupported, open_bus
from slipstream.jobs.clock import now_ms
from slipstream.jobs.config import JobConfig, load_config
from slipstream.jobs.controls import STATES, Controls, Held
from slipstream.jobs.dead_letters import DeadLetters
from slipstream.jobs.errors import JobsError
from slipstream.jobs.handler import Handlers
from slipstream.jobs.ingress import Ingress
from slipstream.jobs.keys import RESOURCES, is_resource_key, manifest_key
from slipstream.jobs.ledger import JobSnapshot, Ledger, open_ledger
from slipstream.jobs.listener import Listener
from slipstream.jobs.log_tail import LogTail, check_log
from slipstream.jobs.lost import LostTasks
from slipstream.jobs.messages import JobStatus, encode
from slipstream.jobs.metrics import service_metrics_in
from slipstream.jobs.progress import Progress
from slipstream.jobs.provision import ensure_groups, ensure_topics
from slipstream.jobs.publishing import attributes_of
from slipstream.jobs.refusal import RefusalCode, Refused
from slipstream.jobs.settings import JobSettings, load_settings
from slipstream.jobs.storage import Storage, Storages
from slipstream.jobs.streams import streams
from slipstream.jobs.teller import Teller
from slipstream.jobs.worker import Worker

log = logging.getLogger(__name__)

HEALTH_S = 5.0
FORGET_EVERY_S = 3600.0
UPLOAD_KEPT_S = 24 * 3600.0
"""Age from which an upload in parts is abandoned, in seconds; at least twice JOBS_UPLOAD_TIMEOUT_MS."""


class Part(msgspec.Struct, frozen=True):
    """A part of the service. A warning needs a person, and the service is ready all the same."""

    status: Literal["ok", "warning", "down"]
    reason: str = ""


class Health(msgspec.Struct, frozen=True):
    status: Literal["ok", "down"]
    parts: dict[str, Part]


class Cleaned(msgspec.Struct, frozen=True):
    """What was removed, or would be."""

    jobs: int
    objects: int
    dry_run: bool


class Service:
    """Made by `serving`."""

    def __init__(self, bus: Bus, ledger: Ledger, storages: Storages, config: JobConfig, settings: JobSettings) -> None:
        self.bus = bus
        self.ledger = ledger
        self.settings = settings
        self._storages = storages
        self._config = config
        self._streams = streams(settings.namespace)
        handlers = Handlers(config)
        self.ingress = Ingress(bus, ledger, storages, handlers, settings)
        self.teller = Teller(bus, ledger, handlers, settings)
        self.progress = Progress()
        self.listener = Listener(
            bus, ledger, self._streams, self.teller.note, self.teller.note_span, self.progress.note
        )
        self.dead_letters = DeadLetters(bus, ledger, self._streams)
        self.log_tail = LogTail(bus, ledger, self._streams)
        self.lost = LostTasks(bus, ledger, self._streams)
        self._controls = Controls(bus, self._streams.control.topic, self._note_control)
        ledger.words = self._controls.word
        self._controlled_ms = 0
        service_metrics_in(bus.registry).count_in(ledger)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Service]:
        # Before the first task is published: on Pub/Sub a group that is not there yet would never see it.
        await ensure_topics(self.bus, self._streams)
        await ensure_groups(self.bus, self.settings)
        async with (
            self.teller.running(),
            self._controls.running(),  # before the listener: a ledger that is made anew has the decisions from it
            self.listener.running(),
            self.ingress.running(),
            self.lost.running(),
        ):
            forgetting = asyncio.create_task(self._forget())
            try:
                yield self
            finally:
                forgetting.cancel()
                await asyncio.gather(forgetting, return_exceptions=True)

    async def health(self) -> Health:
        checks: dict[str, Callable[[], Awaitable[object]]] = {
            "bus": lambda: self.bus.topic(self._streams.tasks.topic),
            "storage": self._storages.default.check,
            "ledger": self._check_ledger,
            "listener": self._check_listener,
        }
        parts = dict(zip(checks, await asyncio.gather(*map(_check, checks.values())), strict=True))
        parts["tasks"] = self._tasks_part()
        is_well = all(part.status != "down" for part in parts.values())
        return Health("ok" if is_well else "down", parts)

    async def rebuild(self) -> None:
        """Reads everything again that the streams hold."""
        await self.listener.start_over()

    async def cleanup(self, older_than_ms: int, *, objects: bool = False, dry_run: bool = False) -> Cleaned:
        """Removes jobs that nothing has happened to for so long, with their manifests, and what was stored of them if
        that is wanted; from the ledger last, so that what was interrupted can be asked for again. One that has not
        ended stays as long as the stream has its tasks."""
        before_ms = now_ms() - older_than_ms
        jobs = self.ledger.idle(before_ms, min(before_ms, now_ms() - self._streams.tasks.retention_ms))
        removed = 0
        for job in jobs:
            for storage, key in self._objects(job, resources=objects):
                removed += 1
                if not dry_run:
                    await storage.delete(key)
            if not dry_run:
                await self.ledger.forget_job(job.job_id, before_ms)
        return Cleaned(len(jobs), removed, dry_run)

    def _objects(self, job: JobSnapshot, *, resources: bool) -> Iterator[tuple[Storage, str]]:
        """What is to go with the job, and nothing else: the ledger has these keys from the streams, where anybody may
        name any; and jobs of a type with a `key_prefix` store in the same places."""
        if job.manifest_key == manifest_key(job.job_type, job.job_id):
            yield self._storages.default, job.manifest_key
        for each in self.ledger.resources(job.job_id) if resources else ():
            storage = self._storages.find(each.storage)
            if storage is not None and is_resource_key(each.key) and not self.ledger.is_shared(each, job.job_id):
                yield storage, each.key

    async def _forget(self) -> None:
        while True:
            try:
                if forgotten := await self.ledger.forget(self.settings.keep_ms, self._streams.tasks.retention_ms):
                    log.info("%d jobs were forgotten (JOBS_KEEP_MS)", forgotten)
            except JobsError as error:
                log.warning("old jobs cannot be forgotten: %s", error)
            await self.abort_uploads()
            await asyncio.sleep(FORGET_EVERY_S)

    async def abort_uploads(self) -> None:
        """Abort multipart uploads that workers have begun for jobs of this ledger and never completed."""
        kept_s = max(UPLOAD_KEPT_S, 2 * self.settings.upload_timeout_ms / 1000)
        before = dt.datetime.now(dt.UTC) - dt.timedelta(seconds=kept_s)
        for storage in self._storages:
            try:
                if aborted := await storage.abort_uploads(f"{RESOURCES}/", before, self._is_ours):
                    log.info("%d uploads to %s that were never completed were aborted", aborted, storage.shown)
            except JobsError as error:
                log.warning("%s", error)

    def _is_ours(self, key: str) -> bool:
        """Whether a job of this ledger, or of a type with a key_prefix, stores there: others may use the bucket too."""
        place, *parts = key.split("/")[:-1]
        prefixes = (kind.key_prefix.strip("/") for kind in self._config.types.values())
        if place != RESOURCES or not parts:
            return False
        return any(each and "/".join(parts) == each for each in prefixes) or self.ledger.job(parts[-1]) is not None

    async def _check_ledger(self) -> None:
        self.ledger.counts()

    async def control(self, job_id: str, held: Held) -> JobSnapshot:
        """Cancel, pause or resume a job. Raises Refused, BusError, JobsError.

        It is published first: a service that dies then reads it at its next start, as all workers do at once.
        """
        job = self._job(job_id)
        if job.is_ended and not (job.state == held == "cancelled"):
            why = "requeue starts it again" if job.state == "cancelled" else "nothing of it is left to do"
            raise Refused(RefusalCode.CONFLICT, f"job {job_id} is {job.state}: {why}", job_id=job_id)
        if not held and job_id in self.lost.jobs:
            why = "its tasks are lost: requeue publishes them again and resumes it"
            raise Refused(RefusalCode.CONFLICT, f"job {job_id} is {job.state}: {why}", job_id=job_id)
        return await self._hold(job_id, held, self._control_ms(job_id))

    def _control_ms(self, job_id: str) -> int:
        """Return the time of a new decision: later than the last about this job, whichever clock that was of."""
        self._controlled_ms = max(now_ms(), self._controlled_ms + 1, self.ledger.held_ms(job_id) + 1)
        return self._controlled_ms

    async def _hold(self, job_id: str, held: Held, at_ms: int) -> JobSnapshot:
        topic = self._streams.control.topic
        try:
            await check_log(self.bus, topic)
        except Unsupported as error:
            text = "jobs cannot be cancelled or paused here: this engine keeps no log for workers to read"
            raise Unsupported(text) from error
        status = JobStatus(job_id=job_id, state=STATES[held], timestamp_ms=at_ms)
        await self.bus.publish(topic, encode(status), attributes_of("JobStatus", job_id), job_id)
        await self._note_control(job_id, held, at_ms)
        job = self.ledger.job(job_id)
        assert job is not None, "it was there"
        return job

    async def _note_control(self, job_id: str, held: Held, at_ms: int) -> None:
        if (changed := await self.ledger.fold_control(job_id, held, at_ms)) is not None:
            self.teller.note([changed])

    async def requeue(self, job_id: str, *, force: bool = False) -> int:
        """Publish the tasks again that a job lacks, and resume it if it was cancelled or paused; return how many.

        The tasks of a paused job are in the stream. `force` publishes tasks also where none is known to be missing: one
        that is still in the stream is done twice, and counts once. Raises Refused, BusError, JobsError.
        """
        found = self._job(job_id)
        again = self.ingress.job_again(found)
        async with self.ingress.only(job_id):
            if not force:
                await self.lost.look_at(job_id)
            job = self._check_requeue(found, force=force)
            is_held = job.state in {"cancelled", "paused"}
            control_ms = self._control_ms(job_id) if is_held else self.ledger.held_ms(job_id)
            is_lacking = force or job.state == "cancelled" or job_id in self.lost.jobs
            tasks = await self.ingress.tasks_left(again, job.resources_total) if is_lacking else []
            if tasks:
                since_ms = self.ledger.held_ms(job_id) if job.state == "cancelled" else job.updated_ms
                await self.ingress.publish_again(again, tasks, since_ms, control_ms)
            if is_held:  # last, so that a requeue that failed can be repeated
                await self._hold(job_id, "", control_ms)
            if tasks:
                await self.ledger.requeued(job_id)
        self.lost.requeued(job_id)
        self.teller.note(self.ledger.untold())
        return len(tasks)

    def _check_requeue(self, job: JobSnapshot, *, force: bool) -> JobSnapshot:
        """Return the job as it is now. Raises Refused."""
        known, job = self.ledger.submission(job.job_id), self._job(job.job_id)
        why = ""
        if known is not None and known.stage != "published":
            why = "its tasks are being published, and it goes on by itself"
        elif job.is_ended and job.state != "cancelled":
            why = "nothing of it is left to do; replay publishes its dead letters again"
        elif job.state not in {"cancelled", "paused"} and job.job_id not in self.lost.jobs and not force:
            left = job.resources_total - job.resources_completed - job.resources_failed
            why = (
                "no task of it is known to be lost; add --force (force=true) to publish the tasks of its "
                f"{left} unfinished resource{'' if left == 1 else 's'} again"
            )
        if why:
            raise Refused(RefusalCode.CONFLICT, f"job {job.job_id} is {job.state}: {why}", job_id=job.job_id)
        return job

    def _job(self, job_id: str) -> JobSnapshot:
        job = self.ledger.job(job_id)
        if job is None:
            raise Refused(RefusalCode.INVALID_PAYLOAD, f"there is no job {job_id!r:.140} in the ledger")
        return job

    def _tasks_part(self) -> Part:
        if not (lost := self.lost.jobs):
            return Part("ok")
        first = next(iter(lost))
        return Part(
            "warning",
            f"{len(lost)} jobs have lost tasks to the retention of {self._streams.tasks.topic}, {first} among "
            f"them: slipstream jobs requeue {first} publishes them again",
        )

    async def _check_listener(self) -> None:
        if self.listener.failure is not None:
            raise self.listener.failure


async def _check(check: Callable[[], Awaitable[object]]) -> Part:
    try:
        async with asyncio.timeout(HEALTH_S):
            await check()
    except TimeoutError:
        return Part("down", f"no answer in {HEALTH_S:g} s")
    except Exception as error:  # noqa: BLE001 - it is what was asked for
        return Part("down", str(error) or type(error).__name__)
    return Part("ok")


@contextlib.asynccontextmanager
async def serving(
    settings: JobSettings | None = None, *, worker: bool = False, bus: Bus | None = None, **bus_settings: Any
) -> AsyncIterator[Service]:
    """On the bus that the environment names, unless one is given, until the end of the `async with`; with `worker`
    tasks are done here, too: with the embedded broker, that is the only way.

    Example:
        async with serving(worker=True) as service:
            await service.ingress.submit("photos", manifest)
    """
    settings = settings or load_settings({})
    config = load_config(settings.config)
    async with contextlib.AsyncExitStack() as stack:
        if bus is None:
            bus = await stack.enter_async_context(open_bus(**bus_settings))
        storages = Storages(settings.storage, config, sync=settings.storage_sync)
        stack.callback(storages.close)
        ledger = await stack.enter_async_context(open_ledger(settings.ledger))
        service = Service(bus, ledger, storages, config, settings)
        await stack.enter_async_context(service.running())
        if worker:
            await stack.enter_async_context(Worker(settings, config, storages).running(bus))
        yield service


@contextlib.asynccontextmanager
async def working(settings: JobSettings | None = None, **bus_settings: Any) -> AsyncIterator[Bus]:
    """A worker alone, on a bus that it shares with the service.

    Example:
        async with working() as bus:
            await bus.until_stopped()
    """
    settings = settings or load_settings({})
    config = load_config(settings.config)
    async with open_bus(**bus_settings) as bus:
        storages = Storages(settings.storage, config, sync=settings.storage_sync)
        try:
            async with Worker(settings, config, storages).running(bus):
                yield bus
        finally:
            storages.close()
