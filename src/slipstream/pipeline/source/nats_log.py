"""The log of NATS JetStream: a stream is a topic with one partition, and its sequences are the offsets."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
import pyarrow as pa
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, StreamInfo
from nats.js.errors import NotFoundError

from slipstream.bus.drivers.nats.connection import Connection
from slipstream.bus.drivers.nats.errors import FAILURES, translate
from slipstream.bus.drivers.nats.follow import reading
from slipstream.bus.drivers.nats.headers import from_headers
from slipstream.bus.drivers.nats.place import place_of
from slipstream.bus.settings import load_settings
from slipstream.client.portal import LoopThread
from slipstream.pipeline.source.columns import LOG_SCHEMA, combined, schema_with
from slipstream.pipeline.source.errors import ConnectorError, removed, replaced
from slipstream.pipeline.source.log import BATCH_BYTES, BATCH_ROWS, Log
from slipstream.pipeline.source.range import Range
from slipstream.pipeline.source.standing import PartitionStanding, Standing, TopicStanding

T = TypeVar("T")

FETCH_MESSAGES = 1_000
FETCH_S = 10.0
ATTEMPTS = 5
"""Of a consumer that lost something on the way, one after the other, without a message in between."""


class NatsLog(Log):
    def __init__(self, given: Mapping[str, str], *, fail_on_data_loss: bool = True) -> None:
        super().__init__(fail_on_data_loss=fail_on_data_loss)
        self._settings = load_settings({**given, "driver": "nats"})
        self._prefix = self._settings.prefix
        self._connection = Connection(self._settings)
        self._portal = LoopThread()
        try:
            self._portal.run(self._connection.open())
        except BaseException:
            self._portal.close()
            raise
        self._js = JetStreamContext(self._connection.nats)

    def close(self) -> None:
        if not self._portal.closed:
            self._portal.run(self._connection.close())
            self._portal.close()

    # How far topics reach

    def standing(
        self,
        topics: Sequence[str] | None,
        *,
        since: dt.datetime | None = None,
        known: Standing | None = None,
        wait_ms: int = 0,
    ) -> Standing:
        return self._run(lambda: self._standing(topics, since, known, wait_ms), "asking for streams")

    async def _standing(
        self, topics: Sequence[str] | None, since: dt.datetime | None, known: Standing | None, wait_ms: int
    ) -> Standing:
        if known is None or not wait_ms:
            return await self._look(topics, since)
        heard = asyncio.Event()
        async with self._listening(topics if topics is not None else list(known), heard):
            found = await self._look(topics, since)
            if _reach(found) != _reach(known):
                return found
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_ms / 1000):
                    await heard.wait()
        # What was heard may not be stored yet; who asks again finds it.
        return await self._look(topics, since)

    @contextlib.asynccontextmanager
    async def _listening(self, topics: Sequence[str], heard: asyncio.Event) -> AsyncGenerator[None, None]:
        """To the next message on any of the subjects: whatever is stored is published first. Who may not listen waits
        for the whole of its time, and so does a topic that is new.

        Only to those: whoever hears all subjects hears the questions of its own look and their answers, and does not
        wait at all.
        """

        async def hear(_: Msg) -> None:
            heard.set()

        nats = self._connection.nats
        subscriptions = [await nats.subscribe(self._prefix + topic, cb=hear) for topic in topics]
        try:
            for subscription in subscriptions:
                await subscription.unsubscribe(limit=1)
            await nats.flush()
            yield
        finally:
            for subscription in subscriptions:
                with contextlib.suppress(*FAILURES):
                    await subscription.unsubscribe()

    async def _look(self, topics: Sequence[str] | None, since: dt.datetime | None) -> Standing:
        names = topics if topics is not None else await self._topics()
        found = {}
        for name in names:
            info = await self._info(name)
            if info is not None:
                found[name] = await self._stand(name, info, since)
        return found

    async def _topics(self) -> list[str]:
        """Every subject that a stream stores, with the prefix of ours, without it."""
        found: set[str] = set()
        seen = 0
        while True:
            page = await self._js.streams_info(offset=seen)
            for info in page:
                found.update(await self._subjects(info))
            seen += len(page)
            if not page:
                break
        return sorted(name.removeprefix(self._prefix) for name in found if name.startswith(self._prefix))

    async def _subjects(self, info: StreamInfo) -> set[str]:
        subjects = set(info.config.subjects or ())
        if any(token in {"*", ">"} for subject in subjects for token in subject.split(".")):
            detailed = await self._js.stream_info(info.config.name or "", subjects_filter=">")
            return set(detailed.state.subjects or ())
        return subjects

    async def _info(self, topic: str) -> StreamInfo | None:
        try:
            return await self._js.stream_info(await self._js.find_stream_name_by_subject(self._prefix + topic))
        except NotFoundError:
            return None

    async def _stand(self, topic: str, info: StreamInfo, since: dt.datetime | None) -> TopicStanding:
        state = info.state
        end = state.last_seq + 1
        at = None if since is None else await self._sequence_at(topic, info, since, end)
        return TopicStanding(topic, _made(info), [PartitionStanding(0, _first(info), end, at)])

    async def _sequence_at(self, topic: str, info: StreamInfo, since: dt.datetime, end: int) -> int:
        config = ConsumerConfig(
            ack_policy=AckPolicy.NONE,
            deliver_policy=DeliverPolicy.BY_START_TIME,
            opt_start_time=since,
            filter_subject=self._prefix + topic,
            inactive_threshold=30.0,
            mem_storage=True,
        )
        async with self._consumer(info.config.name or "", config) as (pending, fetch):
            if not pending:
                return end
            (msg,) = await fetch(1)
            return place_of(msg.reply).stream_sequence

    # Reading

    def read(self, asked: Range, names: Sequence[str] = LOG_SCHEMA.names) -> Iterator[pa.RecordBatch]:
        if asked.partition != 0:
            raise ConnectorError(f"{asked.topic} is a stream, with one partition, 0, and no {asked.partition}")
        yield from combined(self._portal.iterated(self._batches(asked, names)), BATCH_ROWS, BATCH_BYTES)

    async def _batches(self, asked: Range, names: Sequence[str]) -> AsyncGenerator[pa.RecordBatch, None]:
        try:
            info = await self._info(asked.topic)
            if not self._is_there(asked, info):
                return
            assert info is not None
            start = max(asked.start, _first(info), 1)
            gap: int | None = None
            following = start
            async with contextlib.aclosing(self._messages(asked, info.config.name or "", start)) as pages:
                async for page in pages:
                    for msg in page:
                        sequence = place_of(msg.reply).stream_sequence
                        if gap is None and sequence != following:
                            gap = following
                        following = sequence + 1
                    yield self._batch(asked.topic, page, names)
            if gap is None and following < asked.end:
                gap = following
            if gap is not None:
                # A stream may have holes: what other subjects have, or what was deleted by hand. Where retention is now
                # behind one of ours, nobody can tell.
                self._is_there(msgspec.structs.replace(asked, start=gap), await self._info(asked.topic))
        except FAILURES as error:
            raise translate(error, f"reading {asked.topic}") from error

    def _is_there(self, asked: Range, info: StreamInfo | None) -> bool:
        made = _made(info) if info is not None else ""
        if info is None or made != asked.incarnation:
            self.lose(replaced(asked, made))
            return False
        if asked.start < _first(info):
            self.lose(removed(asked, _first(info)))
        return True

    async def _messages(self, asked: Range, stream: str, start: int) -> AsyncGenerator[list[Msg], None]:
        """What lies between, without what is behind it. Nothing is acked, so what is lost on the way is missed in the
        numbers that the consumer gives, and asked for again, of another."""
        failures = 0
        while start < asked.end and failures < ATTEMPTS:
            async with self._consumer(stream, reading(self._prefix + asked.topic, start)) as (pending, fetch):
                expected, left = 1, pending
                while left and start < asked.end:
                    page = []
                    for msg in await fetch(min(left, FETCH_MESSAGES)):
                        place = place_of(msg.reply)
                        if place.consumer_sequence != expected:
                            break
                        expected += 1
                        left -= 1
                        start = place.stream_sequence + 1
                        if place.stream_sequence < asked.end:
                            page.append(msg)
                    if page:
                        failures = 0
                        yield page
                    elif start < asked.end:
                        failures += 1
                        break
                else:
                    return
        if start < asked.end:
            raise ConnectorError(f"{asked.topic}: messages from {start} on do not arrive; is the network well?")

    @contextlib.asynccontextmanager
    async def _consumer(
        self, stream: str, config: ConsumerConfig
    ) -> AsyncGenerator[tuple[int, Callable[[int], Coroutine[Any, Any, list[Msg]]]], None]:
        """One of no name, which takes nothing from anybody: how much it has, and how to get it."""
        info = await self._js.add_consumer(stream, config)
        subscription = await self._js.pull_subscribe_bind(consumer=info.name, stream=stream)

        async def fetch(count: int) -> list[Msg]:
            return await subscription.fetch(count, timeout=FETCH_S)

        try:
            yield info.num_pending or 0, fetch
        finally:
            with contextlib.suppress(*FAILURES):  # the server forgets it by itself
                await subscription.unsubscribe()
                await self._js.delete_consumer(stream, info.name)

    def _batch(self, topic: str, messages: Sequence[Msg], names: Sequence[str]) -> pa.RecordBatch:
        places = [place_of(msg.reply) for msg in messages]
        taken = [from_headers(msg.headers) for msg in messages]
        count = len(messages)
        columns = {
            "key": pa.array([key.encode() for _, key in taken], pa.binary()),
            "value": pa.array([msg.data for msg in messages], pa.binary()),
            "topic": pa.repeat(pa.scalar(topic, pa.string()), count),
            "partition": pa.repeat(pa.scalar(0, pa.int32()), count),
            "offset": pa.array([place.stream_sequence for place in places], pa.int64()),
            "timestamp": pa.array([place.published_ms * 1000 for place in places], pa.int64()).cast(
                LOG_SCHEMA.field("timestamp").type
            ),
            "headers": pa.array(
                [list(attributes.items()) or None for attributes, _ in taken], LOG_SCHEMA.field("headers").type
            ),
        }
        schema = schema_with(names)
        return pa.record_batch(
            [columns[field.name] if field.name in columns else pa.nulls(count, field.type) for field in schema],
            schema=schema,
        )

    def _run(self, work: Callable[[], Coroutine[Any, Any, T]], what: str) -> T:
        try:
            return self._portal.run(work())
        except FAILURES as error:
            raise translate(error, what) from error


def _made(info: StreamInfo) -> str:
    """When; one that is deleted and made again has another time, and other messages."""
    return "" if info.created is None else str(round(info.created.timestamp() * 1e6))


def _first(info: StreamInfo) -> int:
    """Sequences begin at 1: of such a stream nothing is gone."""
    return info.state.first_seq if info.state.first_seq > 1 else 0


def _reach(standing: Standing) -> dict[str, tuple[str, int]]:
    return {name: (topic.incarnation, topic.end) for name, topic in standing.items()}
