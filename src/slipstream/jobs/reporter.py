"""Tells what happens to tasks, on `jobs.logs`."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
from collections.abc import AsyncIterator, Mapping

from slipstream.bus import Bus, Draft
from slipstream.jobs.clock import now_ms
from slipstream.jobs.ledger.telling import STEP, TENANT
from slipstream.jobs.messages import DownloadTask, JobLog, LogLevel, encode
from slipstream.jobs.publishing import attributes_of
from slipstream.spans import active_span

log = logging.getLogger(__name__)

TOGETHER = 500
"""Logs in one call of the bus."""


TEXT_CHARS_MAX = 8192
"""Of a message and of each field, as long as a URL may be. A task may have a megabyte of it: a log that the bus does
not take would take those of others, which are published with it, along."""


class Reporter:
    """Publishes what is told while the last was being stored, all of it together: there are several logs to a task, and
    one by one they cost as much as the download of something small.

    Example:
        async with Reporter(bus, "fetchbox.jobs.logs").running() as reporter:
            reporter.mention(task, "started", "started", {})
            await reporter.tell(task, "stored", "stored 17 bytes", {"bytes": 17})
    """

    def __init__(self, bus: Bus, topic: str) -> None:
        self._bus = bus
        self._topic = topic
        self._drafts: list[Draft] = []
        self._stored: asyncio.Future[None] | None = None
        """Of what is next."""
        self._told = asyncio.Event()
        self._turn = asyncio.Lock()
        """At the bus."""
        self._attributes: tuple[str, dict[str, str]] = ("", {})

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Reporter]:
        """At its end everything that was mentioned is stored, or logged that it was not."""
        publishing = asyncio.get_running_loop().create_task(self._publish_for_ever(), context=contextvars.Context())
        try:
            yield self
        finally:
            publishing.cancel()
            await asyncio.gather(publishing, return_exceptions=True)
            await self._publish()

    def mention(
        self,
        task: DownloadTask,
        step: str,
        text: str,
        fields: Mapping[str, object],
        level: LogLevel = LogLevel.LOG_LEVEL_INFO,
    ) -> asyncio.Future[None]:
        """A step on which nothing depends: it is published soon. Who wants to know awaits the future."""
        self._drafts.append(Draft(_encoded(task, step, text, level, fields), self._of(task), task.job_id))
        if self._stored is None:
            self._stored = asyncio.get_running_loop().create_future()
            self._told.set()
        return self._stored

    async def tell(
        self,
        task: DownloadTask,
        step: str,
        text: str,
        fields: Mapping[str, object],
        level: LogLevel = LogLevel.LOG_LEVEL_INFO,
    ) -> None:
        """Safe in the stream when this returns: what became of the task. Raises BusError."""
        await asyncio.shield(self.mention(task, step, text, fields, level))

    def _of(self, task: DownloadTask) -> dict[str, str]:
        """The very same for those of a job, mostly: the bus then looks at them once. With a span they are of that."""
        job_id = task.job_id
        if active_span():
            return attributes_of("JobLog", job_id, task.trace_id)
        if self._attributes[0] != job_id:
            self._attributes = (job_id, attributes_of("JobLog", job_id))
        return self._attributes[1]

    async def _publish_for_ever(self) -> None:
        while True:
            await self._told.wait()
            await self._gather()
            async with self._turn:
                await self._publish()

    async def _gather(self) -> None:
        """What comes while the last was being stored is enough."""

    async def _publish(self) -> None:
        drafts, stored = self._drafts, self._stored
        self._drafts, self._stored = [], None
        self._told.clear()
        if stored is None:
            return
        try:
            for first in range(0, len(drafts), TOGETHER):
                await self._bus.publish_all(self._topic, drafts[first : first + TOGETHER])
        except Exception as error:  # noqa: BLE001 - carried to whoever waits for it
            log.warning("%d logs were not stored: %s", len(drafts), error)
            stored.set_exception(error)
            stored.exception()  # nobody has to look at it
        except asyncio.CancelledError:
            self._drafts[:0] = drafts  # the last words, at the end
            self._stored, pending = stored, self._stored
            if pending is not None:
                stored.add_done_callback(lambda _: _pass_on(stored, pending))
            raise
        else:
            stored.set_result(None)


def _pass_on(of: asyncio.Future[None], to: asyncio.Future[None]) -> None:
    if to.done():
        return
    if (error := of.exception()) is None:
        to.set_result(None)
    else:
        to.set_exception(error)
        to.exception()


def _texts(fields: Mapping[str, object]) -> dict[str, str]:
    return {name: str(value)[:TEXT_CHARS_MAX] for name, value in fields.items() if value not in {"", None}}


def _encoded(task: DownloadTask, step: str, text: str, level: LogLevel, fields: Mapping[str, object]) -> bytes:
    return encode(
        JobLog(
            job_id=task.job_id,
            resource_id=task.resource_id,
            level=level,
            message=text[:TEXT_CHARS_MAX],
            fields={STEP: step, **_texts({TENANT: task.tenant}), **_texts(fields)},
            timestamp_ms=now_ms(),
            trace_id=task.trace_id,
        )
    )
