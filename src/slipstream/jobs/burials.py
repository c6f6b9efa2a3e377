"""The end of tasks that cannot be done: a dead letter, and a log that says so."""

from __future__ import annotations

import contextlib
import logging

from slipstream.bus import Bus, InvalidArgument
from slipstream.jobs.clock import now_ms
from slipstream.jobs.errors import MalformedMessage
from slipstream.jobs.failure import Code, TaskFailed
from slipstream.jobs.handed import Handed
from slipstream.jobs.ledger.telling import FAILED, started_fields
from slipstream.jobs.messages import (
    NAME_CHARS_MAX,
    DeadLetterTask,
    DownloadTask,
    LogLevel,
    TaskAttributes,
    decode,
    encode,
)
from slipstream.jobs.metrics import metrics_in
from slipstream.jobs.publishing import attributes_of, message_id
from slipstream.jobs.reporter import Reporter

log = logging.getLogger(__name__)

CORE_CHARS_MAX = 8192
"""Of each text in what is left of a task that is too large: as long as a URL may be."""
CORE_BYTES_MAX = 64 * 1024
"""Of its bytes, likewise."""
FIELD_CHARS_MAX = 1_000


class Burials:
    """Those of a worker."""

    def __init__(self, bus: Bus, topic: str, reporter: Reporter) -> None:
        self._bus = bus
        self._topic = topic
        self._reporter = reporter
        self._metrics = metrics_in(bus.registry)

    async def bury_malformed(self, handed: Handed, error: MalformedMessage) -> None:
        """Of what is no task."""
        await self.bury(handed, _remains(handed), TaskFailed(Code.SYSTEM_MALFORMED_TASK, str(error)), 0)

    async def bury(self, handed: Handed, task: DownloadTask, failure: TaskFailed, attempts: int) -> None:
        """The dead letter first: a resource that counts as failed is always to be found there. Raises BusError."""
        task.attempt = attempts
        letter = DeadLetterTask(
            task=task,
            failure_code=failure.code,
            failure_message=failure.message,
            attempts=attempts,
            failed_at_ms=now_ms(),
        )
        try:
            await self._publish(handed, letter)
        except InvalidArgument:
            # With the reason on top it is more than the bus takes, and would come again for ever.
            letter.task.CopyFrom(_core(task))
            letter.failure_message += "; the task is too large for a dead letter, which has only what it is about"
            await self._publish(handed, letter)
        self._metrics.tasks.labels("failed", failure.code).inc()
        if task.job_id and task.resource_id:
            await self._reporter.tell(
                task,
                FAILED,
                failure.message,
                {"code": failure.code, "attempts": attempts, **started_fields(task)},
                LogLevel.LOG_LEVEL_ERROR,
            )
        log.info("%s of job %s is a dead letter: %s", task.resource_id, task.job_id, failure)

    async def _publish(self, handed: Handed, letter: DeadLetterTask) -> None:
        """Known again by where its task was published, if whoever does this dies before the task is acked."""
        task = letter.task
        await self._bus.publish(
            self._topic,
            encode(letter),
            attributes_of("DeadLetterTask", task.job_id, task.trace_id),
            task.job_id,
            message_id=message_id("dead", handed.topic, handed.id, str(handed.published_s)),
        )


def _remains(handed: Handed) -> DownloadTask:
    """What cannot be read, whole, for whoever can: and of what it belongs to as much as is known, so that its job comes
    to an end. Without a URL: nobody is to replay it as it is."""
    remains = DownloadTask(job_id=handed.key[:NAME_CHARS_MAX], attributes=TaskAttributes(extra=handed.data))
    with contextlib.suppress(MalformedMessage):
        task = decode(DownloadTask, handed.data)
        remains.job_id = task.job_id[:NAME_CHARS_MAX] or remains.job_id
        remains.resource_id = task.resource_id[:NAME_CHARS_MAX]
        for name in ("job_type", "tenant", "manifest_key"):
            setattr(remains, name, getattr(task, name)[:FIELD_CHARS_MAX])
    return remains


def _core(task: DownloadTask) -> DownloadTask:
    """What it is about, of a task that is too large to be kept."""
    texts = ("job_id", "job_type", "resource_id", "url", "manifest_key", "tenant", "trace_id")
    core = DownloadTask(attempt=task.attempt, **{name: getattr(task, name)[:CORE_CHARS_MAX] for name in texts})
    core.attributes.extra = task.attributes.extra[:CORE_BYTES_MAX]
    return core
