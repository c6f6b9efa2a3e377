"""The driver of the embedded broker, on disk or in memory."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any

from msgspec.structs import replace

from slipstream.broker import (
    Broker,
    BrokerError,
    Envelope,
    InProgress,
    NewMessage,
    NotFound,
    Overloaded,
    Partition,
    Placement,
    RetryPolicy,
    Topic,
    TopicOverrides,
    decode_meta,
)
from slipstream.broker import InvalidArgument as Refused
from slipstream.bus.drivers.driver import FOLLOW_MESSAGES, Finding, Outgoing, Stored, TopicInfo
from slipstream.bus.drivers.embedded.broker import Tenancy, acquire
from slipstream.bus.drivers.embedded.errors import translate
from slipstream.bus.drivers.embedded.examination import examination
from slipstream.bus.drivers.embedded.source import FAILURE_LOOK_S, EmbeddedSource
from slipstream.bus.errors import BusClosed, BusError, InvalidArgument, TopicMissing
from slipstream.bus.options import SubscribeOptions
from slipstream.bus.settings import BusSettings
from slipstream.engine import Answer, Engine, first_offset, read_slice
from slipstream.record import LogUnreadable, Record
from slipstream.store import LogSlice

READ_BYTES = 1 << 20
"""Of a log, at a time."""

IN_PROGRESS_PAUSE_S = 0.01
NEW_TOPICS_S = 0.5
"""How often a tap looks for topics that were not there before."""


class _Posted:
    """Whoever waits until a message is stored."""

    __slots__ = ("future", "id")

    def __init__(self) -> None:
        self.future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.id = ""

    def settled(self, error: BrokerError | None) -> None:
        if self.future.done():
            return  # whoever waited has gone
        if error is None:
            self.future.set_result(self.id)
        else:
            self.future.set_exception(translate(error))


class EmbeddedDriver:
    def __init__(self, settings: BusSettings) -> None:
        self.name: str = settings.driver
        self._settings = settings
        self._tenancy: Tenancy | None = None

    @property
    def native(self) -> Engine:
        """The engine that runs the broker."""
        if self._tenancy is None:
            raise BusClosed("this bus is closed: open another")
        return self._tenancy.broker.engine

    async def open(self) -> None:
        self._tenancy = await acquire(self._settings)

    async def close(self) -> None:
        if self._tenancy is not None:
            tenancy, self._tenancy = self._tenancy, None
            await tenancy.release()

    # Topics

    async def topic(self, topic: str) -> TopicInfo | None:
        found = self.native.broker.state.topics.get(topic)
        return None if found is None else _info(found)

    async def topics(self, prefix: str) -> list[str]:
        return sorted(name for name in self.native.broker.state.topics if name.startswith(prefix))

    async def remove(self, topic: str, partition: int, offset: int) -> bool:
        """A journal forgets by time and size only."""
        return False

    async def groups(self, topic: str) -> list[str]:
        found = self.native.broker.state.topics.get(topic)
        return [] if found is None else sorted(found.groups)

    async def ensure_topic(
        self,
        topic: str,
        partitions: int | None = None,
        retention_ms: int | None = None,
        retention_bytes: int | None = None,
    ) -> None:
        settings = self._settings
        overrides = TopicOverrides(
            # With the broker's 256 the retries of a bad hour would keep the rest waiting.
            max_in_flight=settings.max_unfinished,
            # Attempts are counted by the subscriber, who also buries. What a consumer that died held comes at once.
            retry=RetryPolicy(),
            retention_ms=settings.retention_ms if retention_ms is None else retention_ms,
            retention_bytes=retention_bytes,
        )
        answer = Answer()
        try:
            self.native.create_topic(answer, topic, partitions or settings.partitions, overrides)
            await answer
        except BrokerError as error:
            raise translate(error) from error

    async def adjust_topic(
        self, topic: str, partitions: int | None, retention_ms: int | None, retention_bytes: int | None
    ) -> TopicInfo:
        given = {"retention_ms": retention_ms, "retention_bytes": retention_bytes}
        changed = {name: value for name, value in given.items() if value is not None}

        def change(broker: Broker, now_ms: int) -> Topic:
            overrides = replace(broker.topic(topic).overrides, **changed)
            try:
                return broker.change_topic(now_ms, topic, overrides, partitions)
            except Refused:  # fewer than there are, say: the rest is changed all the same
                return broker.change_topic(now_ms, topic, overrides)

        try:
            return _info(await self.native.perform(change))
        except BrokerError as error:
            raise translate(error) from error

    async def ready(self, topic: str) -> None:
        """Makes a topic that is missing, if that is wanted."""
        if topic in self.native.broker.state.topics:
            return
        if not self._settings.ensure:
            raise TopicMissing(f"there is no topic {topic}, and BUS_ENSURE is false: make it with bus.ensure_topic")
        await self.ensure_topic(topic)

    # Messages

    async def post(self, message: Outgoing) -> asyncio.Future[str]:
        posted = _Posted()
        (placement,) = await self._produce(posted, message.topic, [self._new(message)])
        posted.id = f"{placement.partition}/{placement.offset}"
        return posted.future

    async def post_all(self, messages: Sequence[Outgoing]) -> asyncio.Future[Any]:
        """One command to the broker for all of them, which is most of what a message costs."""
        posted = _Posted()
        await self._produce(posted, messages[0].topic, [self._new(message) for message in messages])
        return posted.future

    def _new(self, message: Outgoing) -> NewMessage:
        assert self._tenancy is not None, "the bus is open"
        limit = self._tenancy.broker.message_bytes_max
        if len(message.data) > limit:
            raise InvalidArgument(
                f"a message of {len(message.data)} bytes to {message.topic} is larger than {limit}: a server on the "
                "same directory could not take it: put it elsewhere, or set SLIPSTREAM_MAX_BATCH_BYTES"
            )
        envelope = Envelope(idempotency_key=message.message_id) if message.message_id else None
        return NewMessage(message.key.encode(), message.data, envelope, message.attributes)

    async def _produce(self, posted: _Posted, topic: str, new: list[NewMessage]) -> list[Placement]:
        """Waits for room in the topic, and makes it if it is missing."""
        until = asyncio.get_running_loop().time() + self._settings.publish_timeout_ms / 1000
        while True:
            try:
                return self.native.produce_batch(posted, topic, new)
            except NotFound:
                await self.ready(topic)
            except (Overloaded, InProgress) as error:
                pause_s = error.retry_after_ms / 1000 if isinstance(error, Overloaded) else IN_PROGRESS_PAUSE_S
                if asyncio.get_running_loop().time() + pause_s > until:
                    raise translate(error) from error
                await asyncio.sleep(pause_s)
            except BrokerError as error:
                raise translate(error) from error

    async def subscribe(self, topic: str, group: str, options: SubscribeOptions) -> EmbeddedSource:
        await self.ready(topic)
        if options.dead_letter_topic:
            await self.ready(options.dead_letter_topic)
        try:
            return EmbeddedSource(self, topic, group, options)
        except BrokerError as error:
            raise translate(error) from error

    async def ensure_group(self, topic: str, group: str, options: SubscribeOptions) -> None:
        for name in filter(None, (topic, options.dead_letter_topic)):
            await self.ensure_topic(name)

        def create(broker: Broker, now_ms: int) -> None:
            if group not in broker.topic(topic).groups:
                broker.set_group_retry(now_ms, topic, group, None)

        try:
            await self.native.perform(create)
        except BrokerError as error:
            raise translate(error) from error

    # The log

    async def read(self, topic: str, partition: int, start: int, end: int | None) -> AsyncGenerator[Stored, None]:
        found = self._partition(topic, partition)
        earliest = first_offset(found)
        if start < earliest and start > 0:
            raise InvalidArgument(f"offset {start} of {topic} was removed by retention: the earliest is {earliest}")
        index = found.log.index_from(max(start, earliest))
        last = found.committed if end is None else min(found.committed, found.log.index_from(end))
        while index < last:
            index, records = await self._records(found, index, last)
            for record in records:
                yield _stored(found, record)

    def _partition(self, topic: str, number: int) -> Partition:
        try:
            partitions = self.native.broker.topic(topic).partitions
        except NotFound as error:
            raise TopicMissing(str(error)) from error
        if not 0 <= number < len(partitions):
            raise InvalidArgument(f"{topic} has partitions 0 to {len(partitions) - 1}, and no {number}")
        return partitions[number]

    async def _records(self, partition: Partition, first: int, end: int) -> tuple[int, list[Record]]:
        """Some of them, and where to go on. Retention may remove those that are next while others are looked at."""
        begun_at = first

        def find() -> LogSlice:
            nonlocal begun_at
            begun_at = max(first, partition.first_index)
            return self.native.slice(partition, begun_at, end, READ_BYTES)

        try:
            records = await read_slice(find, LogSlice.records)
            return begun_at + len(records), records
        except BrokerError as error:
            raise translate(error) from error
        except LogUnreadable as error:
            raise BusError(f"{partition.topic.name}/{partition.number} cannot be read on: {error}") from error

    async def follow(self, topic: str, partition: int, start: int) -> AsyncGenerator[list[Stored], None]:
        engine = self.native
        found = self._partition(topic, partition)
        index = found.log.index_from(max(start, first_offset(found)))
        written = asyncio.Event()
        try:
            while True:
                written.clear()
                engine.watch(found, written.set)  # before it is looked at, as in `tap`
                while index < found.committed:
                    index, records = await self._records(found, index, found.committed)
                    stored = [_stored(found, record) for record in records if record.offset >= start]
                    for first in range(0, len(stored), FOLLOW_MESSAGES):
                        yield stored[first : first + FOLLOW_MESSAGES]
                await self._news(found, written)
        finally:
            engine.unwatch(found, written.set)

    async def _news(self, partition: Partition, written: asyncio.Event) -> None:
        """Returns when something was written. Raises where nothing will be any more: nobody else says so."""
        while not written.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FAILURE_LOOK_S):
                    await written.wait()
            engine = self.native
            if engine.failure is not None:
                raise translate(engine.failure)
            try:
                engine.check_there(partition.topic)
            except NotFound as error:
                raise TopicMissing(str(error)) from error

    async def tap(self, prefix: str, listening: asyncio.Event | None = None) -> AsyncGenerator[Stored, None]:
        engine = self.native
        seen: dict[Partition, int] = {partition: partition.committed for partition in self._matching(prefix)}
        if listening is not None:
            listening.set()
        written = asyncio.Event()
        try:
            while True:
                written.clear()
                for partition in self._matching(prefix):
                    # Before it is looked at, or what is written in between would be seen with the next message only.
                    engine.watch(partition, written.set)
                    index = seen.get(partition, 0)
                    while index < partition.committed:
                        index, records = await self._records(partition, index, partition.committed)
                        for record in records:
                            yield _stored(partition, record)
                    seen[partition] = index
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(NEW_TOPICS_S):
                        await written.wait()
        finally:
            for partition in seen:
                engine.unwatch(partition, written.set)

    def _matching(self, prefix: str) -> list[Partition]:
        topics = self.native.broker.state.topics
        return [each for name, topic in topics.items() if name.startswith(prefix) for each in topic.partitions]

    async def examine(self, prefix: str) -> AsyncIterator[Finding]:
        async for finding in examination(self, self._settings, prefix):
            yield finding


def _info(topic: Topic) -> TopicInfo:
    config = topic.config
    return TopicInfo(topic.name, len(topic.partitions), config.retention_ms, config.retention_bytes)


def _stored(partition: Partition, record: Record) -> Stored:
    return Stored(
        topic=partition.topic.name,
        partition=partition.number,
        offset=record.offset,
        data=record.value,
        attributes=dict(decode_meta(record.meta).attributes or {}),
        key=record.key.decode(errors="replace"),
        published_ms=record.timestamp_ms,
    )
