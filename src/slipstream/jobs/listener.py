"""Takes what the streams say into the ledger."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Sequence

from slipstream.bus import Bus, BusError, Message, Stored, Subscription, Unsupported
from slipstream.bus.attributes import TRACEPARENT
from slipstream.jobs.errors import MalformedMessage
from slipstream.jobs.follower import Follower
from slipstream.jobs.groups import LOGS_IN_FLIGHT, STATUSES_IN_FLIGHT, ledger_options
from slipstream.jobs.ledger import JobSnapshot, Ledger, Told
from slipstream.jobs.ledger.telling import PROGRESS, STEP, told
from slipstream.jobs.messages import NAME_CHARS_MAX, JobLog, JobStatus, decode
from slipstream.jobs.provision import ensure_topics
from slipstream.jobs.publishing import LEDGER
from slipstream.jobs.streams import LEDGER_GROUP, Stream, Streams
from slipstream.spans import is_looked_at

log = logging.getLogger(__name__)

TOGETHER = 250
"""Logs that are taken in with one transaction, whose statements run in the loop: some milliseconds."""
GATHER_S = 0.05
"""Pause between two batches of logs, in seconds: what comes meanwhile is one transaction, and one sync."""
PAUSE_S = 1.0
"""Pause before the next attempt to subscribe where the engine keeps no log, in seconds."""


class Listener:
    """Follows `jobs.logs`, and subscribes to `jobs.status`, in the group of the ledger.

    Logs are read as a log where the engine keeps one, with how far in the ledger itself: what is taken in, and that it
    was, are one transaction, and a ledger that is made anew simply reads from the beginning. There are several logs to
    a task, and to have each on lease would cost more than the task. Elsewhere (Pub/Sub) they come by subscription.
    """

    def __init__(
        self,
        bus: Bus,
        ledger: Ledger,
        streams: Streams,
        on_change: Callable[[Sequence[JobSnapshot]], None],
        on_trace: Callable[[str, str], None] = lambda job_id, traceparent: None,
        on_progress: Callable[[JobLog], None] = lambda report: None,
    ) -> None:
        """`on_change` is told of jobs that are not as they were; `on_trace`, where traces are looked at, of the span in
        which something has happened to a job; `on_progress` of each report about downloads under way."""
        self._bus = bus
        self._ledger = ledger
        self._streams = streams
        self._on_change = on_change
        self._on_trace = on_trace
        self._on_progress = on_progress
        self._tasks: list[asyncio.Task[None]] = []
        self._logs: Subscription | None = None
        """Where they cannot be followed."""
        self._followers: list[Follower] = []
        """Of each partition of the logs."""
        self._starting_over = asyncio.Lock()

    @property
    def failure(self) -> Exception | None:
        """Why the streams cannot be followed, as long as they cannot."""
        return next((each.failure for each in self._followers if each.failure is not None), None)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Listener]:
        await ensure_topics(self._bus, self._streams)
        if self._ledger.is_new:
            await self._hear_statuses()
        self._begin(await self._partitions(self._streams.logs))
        options = ledger_options(self._streams, STATUSES_IN_FLIGHT)
        subscription = await self._bus.subscribe(self._streams.status.topic, LEDGER_GROUP, self._take_status, options)
        try:
            yield self
        finally:
            await self._end()
            await subscription.close()

    async def start_over(self) -> None:
        """Reads everything again that the streams hold. Raises BusError, and goes on as before then."""
        async with self._starting_over:
            partitions = await self._partitions(self._streams.logs)
            await self._end()
            try:
                await self._ledger.start_over()
                await self._hear_statuses()
            finally:
                self._begin(partitions)

    async def _partitions(self, stream: Stream) -> int:
        info = await self._bus.topic(stream.topic)
        return info.partitions if info is not None else 1

    def _begin(self, partitions: int) -> None:
        self._followers = [self._follower(self._streams.logs, partition) for partition in range(partitions)]
        self._tasks = [asyncio.create_task(self._follow(each)) for each in self._followers]

    async def _end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks, self._followers = [], []
        if self._logs is not None:
            logs, self._logs = self._logs, None
            await logs.close()

    # Logs

    def _follower(self, stream: Stream, partition: int) -> Follower:
        def position() -> int:
            return self._ledger.position(stream.topic, partition)

        async def take(batch: Sequence[Stored]) -> None:
            await self._take_logs(stream, partition, batch)

        return Follower(self._bus, stream.topic, partition, position, take, GATHER_S)

    async def _follow(self, follower: Follower) -> None:
        """Subscribe to the logs where the engine keeps no log of them."""
        while True:
            try:
                await follower.run()
            except Unsupported as error:
                if await self._is_subscribed(self._streams.logs):
                    follower.failure = None
                    return
                follower.failure = error
            await asyncio.sleep(PAUSE_S)

    async def _take_logs(self, stream: Stream, partition: int, batch: Sequence[Stored]) -> None:
        for first in range(0, len(batch), TOGETHER):
            some = batch[first : first + TOGETHER]
            heard = [each for stored in some if (each := self._heard(stored)) is not None]
            changed = await self._ledger.fold_logs(stream.topic, partition, heard, some[-1].offset + 1)
            if changed:
                self._on_change(changed)

    def _heard(self, message: Stored | Message) -> Told | None:
        try:
            entry = decode(JobLog, message.data)
            heard = told(entry, message.offset)
        except MalformedMessage as error:
            log.warning("a log is left out: %s", error)
            return None
        if heard is None and entry.fields.get(STEP) == PROGRESS:
            self._on_progress(entry)
        if heard is not None and is_looked_at():
            self._on_trace(heard.job_id, message.attributes.get(TRACEPARENT, ""))
        return heard

    async def _is_subscribed(self, stream: Stream) -> bool:
        """False if that cannot be done now."""
        try:
            await self._subscribe_to_logs(stream)
        except BusError as error:
            log.warning("%s cannot be subscribed to, trying on: %s", stream.topic, error)
            return False
        return True

    async def _subscribe_to_logs(self, stream: Stream) -> None:
        async def take(message: Message) -> None:
            heard = self._heard(message)
            if heard is not None and (changed := await self._ledger.fold_logs(stream.topic, 0, [heard])):
                self._on_change(changed)

        options = ledger_options(self._streams, LOGS_IN_FLIGHT)
        self._logs = await self._bus.subscribe(stream.topic, LEDGER_GROUP, take, options)

    # Statuses

    async def _take_status(self, message: Message) -> None:
        if message.attributes.get(LEDGER) == self._ledger.id:
            return  # our own words
        await self._fold_status(message.data)

    async def _hear_statuses(self) -> None:
        """All that the stream holds, for a ledger that has to learn it again."""
        stream = self._streams.status
        try:
            for partition in range(await self._partitions(stream)):
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
        if not 0 < len(status.job_id) <= NAME_CHARS_MAX:
            log.warning("a JobStatus is left out: its job_id has %d characters", len(status.job_id))
            return
        if await self._ledger.fold_status(status) is not None:
            self._on_change([])  # its handler may be to hear of its end; what was told need not be told once more
