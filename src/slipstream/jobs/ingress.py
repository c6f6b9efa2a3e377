"""Where jobs begin: a manifest becomes a stored manifest, a line in the ledger, and a task for each resource.

In that order, and each step may be taken again: the ledger first gives the job its id, so that whoever repeats a
request with the same idempotency key goes on with the same job, wherever it was left.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import secrets
from collections.abc import AsyncIterator, Sequence

import msgspec

from slipstream.bus import Bus, BusError, Draft
from slipstream.jobs.clock import now_ms
from slipstream.jobs.errors import JobsError, MalformedMessage
from slipstream.jobs.handler import Handlers, Job, answer
from slipstream.jobs.job_id import new_job_id
from slipstream.jobs.keys import manifest_key
from slipstream.jobs.ledger import JobSnapshot, Ledger, LedgerUnavailable, Submission
from slipstream.jobs.manifest import InvalidManifest, Manifest, check_manifest, decode_manifest, encode_manifest
from slipstream.jobs.messages import DownloadTask, JobState, JobStatus, check_trace_id, encode, encode_task
from slipstream.jobs.metrics import service_metrics_in
from slipstream.jobs.publishing import CONTROL_MS, LEDGER, attributes_of, message_id
from slipstream.jobs.rate import Rate
from slipstream.jobs.refusal import RefusalCode, Refused
from slipstream.jobs.settings import JobSettings
from slipstream.jobs.storage import ObjectMissing, StorageFailed, Storages
from slipstream.jobs.streams import streams
from slipstream.spans import Attribute, active_span, somewhere_in, span
from slipstream.spans import trace_id as traced

log = logging.getLogger(__name__)

KEY_CHARS_MAX = 256
TENANT_CHARS_MAX = 128
FINISH_PAUSE_S_MAX = 30.0
TRACER = "slipstream.jobs"
TOGETHER = 250
"""Tasks in one call of the bus."""


class Accepted(msgspec.Struct, frozen=True):
    """The answer to a job that was taken."""

    job_id: str
    manifest_key: str
    resource_count: int


class _Unfinishable(Exception):
    """A job that was left, and for which nobody can do anything."""


class _Turn:
    """At a job: who has it, and how many want it."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.wanted = 0


RESOURCE_ENDS = frozenset({"completed", "failed"})


class Ingress:
    """Takes jobs. There is one for a ledger."""

    def __init__(self, bus: Bus, ledger: Ledger, storages: Storages, handlers: Handlers, settings: JobSettings) -> None:
        self._bus = bus
        self._ledger = ledger
        self._storage = storages.default
        self._handlers = handlers
        self._settings = settings
        self._streams = streams(settings.namespace)
        self._rate = Rate(settings.rate_per_s, settings.rate_burst)
        self._metrics = service_metrics_in(bus.registry)
        self._at_work: dict[str, _Turn] = {}
        """By job: a request that is repeated while it is being answered waits for it."""
        self._left = asyncio.Event()
        """A job was left unfinished."""

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Ingress]:
        """Meanwhile jobs that were left in the middle, by a crash or a bus that was away, are brought to their end."""
        await self._clear_away()
        self._left.set()
        finishing = asyncio.create_task(self._finish_left())
        try:
            yield self
        finally:
            finishing.cancel()
            await asyncio.wait({finishing})

    async def submit(
        self,
        job_type: str,
        data: bytes,
        *,
        tenant: str = "",
        idempotency_key: str | None = None,
        trace_id: str = "",
    ) -> Accepted:
        """Raises Refused. When it returns, every task is safe in the stream.

        Example:
            accepted = await ingress.submit("photos", manifest, idempotency_key="crawl-17")
        """
        try:
            accepted = await self._submit(job_type, data, tenant, idempotency_key, trace_id)
        except Refused as refused:
            self.count_refused(refused)
            raise
        self._metrics.accepted.inc()
        return accepted

    def count_refused(self, refused: Refused) -> None:
        """Also by who does not even get here with it."""
        self._metrics.submissions.labels("refused", refused.code.value).inc()

    async def _submit(
        self, job_type: str, data: bytes, tenant: str, idempotency_key: str | None, trace_id: str
    ) -> Accepted:
        if len(tenant) > TENANT_CHARS_MAX or (idempotency_key is not None and len(idempotency_key) > KEY_CHARS_MAX):
            raise Refused(
                RefusalCode.INVALID_PAYLOAD,
                f"a tenant has at most {TENANT_CHARS_MAX} characters, an idempotency key {KEY_CHARS_MAX}",
            )
        config = self._handlers.config.type(job_type)
        if config is None:
            raise Refused(RefusalCode.UNSUPPORTED_JOB_TYPE, self._unsupported(job_type))
        if wait_s := self._rate.take(tenant):
            raise Refused(
                RefusalCode.RATE_LIMITED,
                f"more than {self._settings.rate_per_s:g} jobs a second of this tenant: try again in {wait_s:.1f} s",
                retry_after_s=wait_s,
            )
        try:
            check_trace_id(trace_id)
            sent = decode_manifest(data, max_resources=self._settings.max_resources)
        except (InvalidManifest, MalformedMessage) as error:
            raise Refused(RefusalCode.INVALID_PAYLOAD, str(error)) from error
        submitted = Submission(
            job_id=new_job_id(),
            tenant=tenant,
            job_type=job_type,
            idempotency_key=idempotency_key or None,
            digest=hashlib.sha256(encode_manifest(sent)).digest(),
            trace_id=trace_id or traced(active_span()) or secrets.token_hex(16),
            stage="reserved",
            resources=0,
            created_ms=now_ms(),
        )
        manifest, tasks = await self._prepare(self._job(submitted), sent)
        submission = msgspec.structs.replace(submitted, resources=len(tasks))
        return await self._take(submission, data, manifest, tasks)

    def _unsupported(self, job_type: str) -> str:
        known = ", ".join(sorted(self._handlers.config.types))
        if known:
            return f"there is no job type {job_type!r:.80} here; there are: {known}"
        return f"{job_type!r:.80} cannot be a job type: 1 to 64 of A-Z a-z 0-9 . _ -, the first a letter or digit"

    def _job(self, submission: Submission) -> Job:
        config = self._handlers.config.type(submission.job_type)
        assert config is not None, "it was checked"
        return Job(
            submission.job_id,
            submission.job_type,
            submission.tenant,
            manifest_key(submission.job_type, submission.job_id),
            submission.trace_id,
            config,
        )

    # What the handler makes of it

    async def _prepare(self, job: Job, manifest: Manifest) -> tuple[Manifest, Sequence[DownloadTask]]:
        try:
            handler = self._handlers.of(job.job_type)
            prepared: Manifest = await answer(handler.prepare_manifest(job, manifest))
            check_manifest(prepared, max_resources=self._settings.max_resources)
            return prepared, await self._tasks(job, prepared)
        except InvalidManifest as error:
            raise Refused(RefusalCode.INVALID_PAYLOAD, str(error)) from error
        except Exception as error:
            raise _handler_failed(job.job_type, error) from error

    async def _tasks(self, job: Job, manifest: Manifest) -> Sequence[DownloadTask]:
        """Raises JobsError for what no worker could do."""
        tasks = list(await answer(self._handlers.of(job.job_type).build_tasks(job, manifest)))
        ids = {task.resource_id for task in tasks}
        if not tasks or len(ids) != len(tasks):
            raise JobsError(
                f"its {len(tasks)} tasks are of {len(ids)} resources: one for each is wanted, and at least one"
            )
        for task in tasks:
            task.job_id, task.job_type = job.job_id, job.job_type  # the ledger counts by it
            encode_task(task)
        return tasks

    # Step by step

    async def _take(
        self, submission: Submission, data: bytes, manifest: Manifest, tasks: Sequence[DownloadTask]
    ) -> Accepted:
        try:
            kept = await self._ledger.reserve(submission)
            if kept.digest != submission.digest:
                raise Refused(
                    RefusalCode.INVALID_PAYLOAD,
                    "this idempotency key was used for another manifest: choose a new one for a new job",
                    job_id=kept.job_id,
                )
            async with self.only(kept.job_id):
                if kept.job_id != submission.job_id:
                    await self._again(kept, data)
                else:
                    await self._to_the_end(kept, manifest, tasks)
        except LedgerUnavailable as error:
            raise Refused(
                RefusalCode.LEDGER_FAILED, f"the ledger cannot be written: {error}", retry_after_s=1
            ) from error
        return Accepted(kept.job_id, manifest_key(kept.job_type, kept.job_id), kept.resources)

    async def _again(self, kept: Submission, data: bytes) -> None:
        """The job that has the key, from wherever it was left: once its manifest is stored, with that one."""
        stage = self._ledger.stage(kept.job_id)
        if stage == "published":
            return
        if stage == "queued":
            try:
                await self._finish(kept)
            except (Refused, LedgerUnavailable):
                raise
            except Exception as error:
                log.exception("the job %s cannot be finished", kept.job_id)
                is_gone = isinstance(error, StorageFailed | _Unfinishable)
                raise Refused(
                    RefusalCode.STORAGE_FAILED if is_gone else RefusalCode.HANDLER_FAILED,
                    f"job {kept.job_id} was begun and cannot be finished: {error}",
                    job_id=kept.job_id,
                ) from error
            return
        sent = decode_manifest(
            data, max_resources=self._settings.max_resources
        )  # the handler may have changed the other
        await self._to_the_end(kept, *await self._prepare(self._job(kept), sent))

    @contextlib.asynccontextmanager
    async def only(self, job_id: str) -> AsyncIterator[None]:
        """Let one at a time publish a job."""
        turn = self._at_work.setdefault(job_id, _Turn())
        turn.wanted += 1
        try:
            async with turn.lock:
                yield
        finally:
            turn.wanted -= 1
            if not turn.wanted:
                del self._at_work[job_id]

    async def _to_the_end(self, kept: Submission, manifest: Manifest, tasks: Sequence[DownloadTask]) -> None:
        """From wherever it was left. A step that was taken already is taken again, to the same effect."""
        stage = self._ledger.stage(kept.job_id)
        if stage == "published":
            return
        key = manifest_key(kept.job_type, kept.job_id)
        if stage == "reserved":
            try:
                await self._storage.put(key, encode_manifest(manifest), mime="application/json")
            except StorageFailed as error:
                await self._let_go(kept)
                raise Refused(RefusalCode.STORAGE_FAILED, str(error), job_id=kept.job_id, retry_after_s=1) from error
            await self._ledger.queue(kept.job_id, kept.job_type, kept.tenant, key, [task.resource_id for task in tasks])
        try:
            await self._publish(kept, key, tasks)
        except BusError as error:
            self._left.set()
            raise Refused(
                RefusalCode.PUBLISH_FAILED,
                f"job {kept.job_id} is stored, but its tasks could not be published: {error}. It is finished by "
                "itself when the bus is back; who sends it again with the same idempotency key gets the same job",
                job_id=kept.job_id,
                retry_after_s=1,
            ) from error
        await self._ledger.published(kept.job_id)

    async def _let_go(self, kept: Submission) -> None:
        """Without a key nobody can come back for it. It may have been stored all the same, if only the answer was lost:
        what cannot be removed now is at the next start, by its line in the ledger."""
        if kept.idempotency_key is None:
            with contextlib.suppress(StorageFailed):
                await self._remove(kept)

    async def _publish(self, kept: Submission, key: str, tasks: Sequence[DownloadTask]) -> None:
        """QUEUED first, and not once more of a job that is known to have gone on: after the tasks it might come last,
        and say of a job that has ended that it waits."""
        about: dict[str, Attribute] = {"jobs.job_id": kept.job_id, "jobs.tasks": len(tasks)}
        # One that was left goes on in its own trace, whoever finishes it.
        left = "" if active_span()[3:35] == kept.trace_id or len(kept.trace_id) != 32 else somewhere_in(kept.trace_id)
        with span("publish tasks", TRACER, about, traceparent=left, kind="producer"):
            job = self._ledger.job(kept.job_id)
            if job is None or job.state == "queued":
                await self._tell_queued(kept, key, len(tasks))
            # The very same for all of them, which the bus then looks at once.
            attributes = attributes_of("DownloadTask", kept.job_id, kept.trace_id)
            await self._publish_all([_draft(task, attributes) for task in tasks])

    async def _publish_all(self, drafts: Sequence[Draft]) -> None:
        for first in range(0, len(drafts), TOGETHER):
            await self._bus.publish_all(self._streams.tasks.topic, drafts[first : first + TOGETHER])

    async def _tell_queued(self, kept: Submission, key: str, resources_total: int) -> None:
        status = JobStatus(
            job_id=kept.job_id,
            job_type=kept.job_type,
            state=JobState.JOB_STATE_QUEUED,
            resources_total=resources_total,
            manifest_key=key,
            tenant=kept.tenant,
            timestamp_ms=kept.created_ms,
        )
        await self._bus.publish(
            self._streams.status.topic,
            encode(status),
            {**attributes_of("JobStatus", kept.job_id, kept.trace_id), LEDGER: self._ledger.id},
            kept.job_id,
            message_id=message_id("queued", kept.job_id),
        )

    # Requeue

    def job_again(self, found: JobSnapshot) -> Job:
        """Return what a handler needs to make the tasks of a job again. Raises Refused."""
        config = self._handlers.config.type(found.job_type)
        if not found.manifest_key or config is None:
            raise Refused(
                RefusalCode.INVALID_PAYLOAD,
                f"job {found.job_id} has no stored manifest, or its type is not configured here: only its producer can "
                "publish its tasks again",
                job_id=found.job_id,
            )
        known = self._ledger.submission(found.job_id)
        trace_id = known.trace_id if known is not None else secrets.token_hex(16)
        return Job(found.job_id, found.job_type, found.tenant, found.manifest_key, trace_id, config)

    async def tasks_left(self, job: Job, resources_total: int) -> list[DownloadTask]:
        """Return a task for each resource of a job without an end, from its stored manifest. Raises Refused."""
        try:
            data = await self._storage.get(job.manifest_key)
            manifest = decode_manifest(data, max_resources=max(self._settings.max_resources, resources_total))
        except (ObjectMissing, InvalidManifest) as error:
            raise Refused(
                RefusalCode.CONFLICT,
                f"the stored manifest of job {job.job_id} is gone or damaged: submit the job again ({error})",
                job_id=job.job_id,
            ) from error
        except StorageFailed as error:
            raise Refused(RefusalCode.STORAGE_FAILED, str(error), job_id=job.job_id, retry_after_s=1) from error
        try:
            tasks = await self._tasks(job, manifest)
        except Exception as error:
            raise _handler_failed(job.job_type, error) from error
        # A ledger that was made anew does not know the resources that no worker has begun.
        ended = {each.resource_id for each in self._ledger.resources(job.job_id) if each.state in RESOURCE_ENDS}
        return [task for task in tasks if task.resource_id not in ended]

    async def publish_again(self, job: Job, tasks: Sequence[DownloadTask], since_ms: int, control_ms: int) -> None:
        """Publish tasks again. `since_ms` names the requeue: one that is repeated publishes the same messages.
        `control_ms`: see CONTROL_MS. Raises BusError."""
        attributes = attributes_of("DownloadTask", job.job_id, job.trace_id)
        if control_ms > 0:
            attributes[CONTROL_MS] = str(control_ms)
        drafts = [
            Draft(
                encode(task), attributes, job.job_id, message_id("requeue", job.job_id, task.resource_id, str(since_ms))
            )
            for task in tasks
        ]
        await self._publish_all(drafts)
        log.info("job %s: %d tasks were published again", job.job_id, len(tasks))

    # Those that were left

    async def _clear_away(self) -> None:
        """What was begun by a process that died before it was taken on, and that nobody can ask for again."""
        for submission in self._ledger.unpublished():
            if submission.stage == "reserved" and submission.idempotency_key is None:
                try:
                    await self._remove(submission)
                except StorageFailed as error:
                    log.warning("job %s was never taken, and is cleared away later: %s", submission.job_id, error)

    async def _remove(self, submission: Submission) -> None:
        """A job that was not taken on, with its manifest if it is there."""
        await self._storage.delete(manifest_key(submission.job_type, submission.job_id))
        await self._ledger.withdraw(submission.job_id)

    async def _finish_left(self) -> None:
        pause_s = 0.5
        while True:
            await self._left.wait()
            self._left.clear()
            if await self._finish_all():
                pause_s = 0.5
                continue
            self._left.set()
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, FINISH_PAUSE_S_MAX)

    async def _finish_all(self) -> bool:
        """False if some are to be tried again. One that cannot be finished keeps no other waiting."""
        try:
            left = self._ledger.unpublished()
        except LedgerUnavailable as error:
            log.warning("jobs that were left cannot be looked up, trying on: %s", error)
            return False
        is_done = True
        for submission in left:
            if submission.stage != "queued":
                continue
            try:
                async with self.only(submission.job_id):
                    await self._finish(submission)
            except (Refused, StorageFailed, LedgerUnavailable) as error:
                log.warning("job %s, which was left, cannot be finished yet: %s", submission.job_id, error)
                is_done = False
            except Exception:  # its handler, or what it has made of the manifest: to try on would not help
                log.exception("job %s was left, and cannot be finished", submission.job_id)
        return is_done

    async def _finish(self, submission: Submission) -> None:
        """Raises Refused, JobsError, and whatever its handler does."""
        if self._ledger.stage(submission.job_id) != "queued":
            return  # by somebody who came first
        if self._handlers.config.type(submission.job_type) is None:
            raise _Unfinishable(f"its type {submission.job_type} is not there any more")
        job = self._job(submission)
        try:
            data = await self._storage.get(job.manifest_key)
        except ObjectMissing as error:
            raise _Unfinishable("its manifest is gone") from error
        manifest = decode_manifest(data, max_resources=max(self._settings.max_resources, submission.resources))
        await self._to_the_end(submission, manifest, await self._tasks(job, manifest))
        log.info("job %s, which was left unpublished, is finished", submission.job_id)


def _handler_failed(job_type: str, error: Exception) -> Refused:
    """Log the exception of a handler and return it as a refusal."""
    log.error("the handler of %s failed", job_type, exc_info=error)
    return Refused(RefusalCode.HANDLER_FAILED, f"the handler of {job_type} failed: {type(error).__name__}: {error}")


def _draft(task: DownloadTask, attributes: dict[str, str]) -> Draft:
    """By its id it is known again, if it is published once more."""
    return Draft(encode(task), attributes, task.job_id, message_id("task", task.job_id, task.resource_id))
