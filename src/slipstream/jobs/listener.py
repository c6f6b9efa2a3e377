"""Takes what the streams say into the ledger."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Sequence

from slipstream.bus import Bus, BusError, Message, Stored, SubscribeOptions, Unsupported
from slipstream.jobs.errors import JobsError, MalformedMessage
from slipstream.jobs.ledger import JobSnapshot, Ledger, Told
from slipstream.jobs.ledger.telling import told
from slipstream.jobs.messages import JobLog, JobStatus, decode
from slipstream.jobs.publishing import LEDGER
from slipstream.jobs.streams import OPERATORS, Stream, Streams

log = logging.getLogger(__name__)

TOGETHER = 250
"""Logs that are taken in with one transaction, whose statements run in the loop: some milliseconds."""
PAUSE_S_MAX = 10.0
GATHER_S = 0.05
"""Between two looks at a partition: what comes meanwhile is taken in together, with one transaction and one sync."""


class Listener:
    """Follows `jobs.logs`, and subscribes to `jobs.status`, in the group of operators.

    Logs are read as a log where the engine keeps one, with how far in the ledger itself: what is taken in, and that it
    was, are one transaction, and a ledger that is made anew simply reads from the beginning. There are several logs to
    a task, and to have each on lease would cost more than the task. Elsewhere (Pub/Sub) they come by subscription.
    """

    def __init__(
        self, bus: Bus, ledger: Ledger, streams: Streams, on_change: Callable[[Sequence[JobSnapshot]], None]
    ) -> None:
        """`on_change` is told of jobs that are not as they were."""
        self._bus = bus
        self._ledger = ledger
        self._streams = streams
        self._on_change = on_change
        self._tasks: list[asyncio.Task[None]] = []
        self.failure: Exception | None = None
        """Why the streams cannot be followed, as long as they cannot."""

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Listener]:
        for stream in self._streams.all():
            await self._bus.ensure_topic(
                stream.topic, stream.partitions, stream.retention_ms / 1000, stream.retention_bytes
            )
        if self._ledger.is_new:
            await self._hear_statuses()
        await self._begin()
        subscription = await self._bus.subscribe(
            self._streams.status.topic, OPERATORS, self._take_status, _options(64, self._streams.dlq.topic)
        )
        try:
            yield self
        finally:
            await self._end()
            await subscription.close()

    async def start_over(self) -> None:
        """Reads everything again that the streams hold."""
        await self._end()
        await self._ledger.start_over()
        await self._hear_statuses()
        await self._begin()

    async def _begin(self) -> None:
        logs = self._streams.logs
        info = await self._bus.topic(logs.topic)
        partitions = info.partitions if info is not None else 1
        self._tasks = [asyncio.create_task(self._follow(logs, partition)) for partition in range(partitions)]

    async def _end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    # Logs

    async def _follow(self, stream: Stream, partition: int) -> None:
        pause_s = 0.1
        while True:
            try:
                start = self._ledger.position(stream.topic, partition)
                async with contextlib.aclosing(self._bus.follow(stream.topic, partition, start)) as batches:
                    async for batch in batches:
                        await self._take_logs(stream, partition, batch)
                        self.failure, pause_s = None, 0.1
                        await asyncio.sleep(GATHER_S)
            except Unsupported:
                await self._subscribe_to_logs(stream)
                return
            except (BusError, JobsError) as error:
                if self.failure is None:
                    log.warning("%s/%d cannot be followed, trying on: %s", stream.topic, partition, error)
                self.failure = error
            except Exception as error:
                log.exception("%s/%d cannot be followed, trying on", stream.topic, partition)
                self.failure = error
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, PAUSE_S_MAX)

    async def _take_logs(self, stream: Stream, partition: int, batch: Sequence[Stored]) -> None:
        for first in range(0, len(batch), TOGETHER):
            some = batch[first : first + TOGETHER]
            heard = [each for stored in some if (each := _heard(stored.data, stored.offset)) is not None]
            changed = await self._ledger.fold_logs(stream.topic, partition, heard, some[-1].offset + 1)
            if changed:
                self._on_change(changed)

    async def _subscribe_to_logs(self, stream: Stream) -> None:
        async def take(message: Message) -> None:
            heard = _heard(message.data, message.offset)
            if heard is not None and (changed := await self._ledger.fold_logs(stream.topic, 0, [heard])):
                self._on_change(changed)

        await self._bus.subscribe(stream.topic, OPERATORS, take, _options(256, self._streams.dlq.topic))

    # Statuses

    async def _take_status(self, message: Message) -> None:
        if message.attributes.get(LEDGER) == self._ledger.id:
            return  # our own words
        await self._fold_status(message.data)

    async def _hear_statuses(self) -> None:
        """All that the stream holds, for a ledger that has to learn it again."""
        stream = self._streams.status
        info = await self._bus.topic(stream.topic)
        try:
            for partition in range(info.partitions if info is not None else 1):
                async with contextlib.aclosing(self._bus.read(stream.topic, partition)) as messages:
                    async for stored in messages:
                        if stored.attributes.get(LEDGER) != self._ledger.id:
                            await self._fold_status(stored.data)
        except Unsupported:
            log.info("%s cannot be read again: this engine keeps no log", stream.topic)

    async def _fold_status(self, data: bytes) -> None:
        try:
            status = decode(JobStatus, data)
        except MalformedMessage as error:
            log.warning("a message on %s is left out: %s", self._streams.status.topic, error)
            return
        if not status.job_id:
            log.warning("a JobStatus without a job_id is left out")
            return
        changed = await self._ledger.fold_status(status)
        if changed is not None:
            self._on_change([changed])


def _options(max_in_flight: int, dead_letters: str) -> SubscribeOptions:
    """Without a limit of deliveries: what comes again does so because the ledger could not be written."""
    return SubscribeOptions(max_in_flight=max_in_flight, max_deliver=0, dead_letter_topic=dead_letters)


def _heard(data: bytes, offset: int) -> Told | None:
    try:
        return told(decode(JobLog, data), offset)
    except MalformedMessage as error:
        log.warning("a log is left out: %s", error)
        return None
