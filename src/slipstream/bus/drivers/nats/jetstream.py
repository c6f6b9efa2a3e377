"""The driver of NATS JetStream."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any

from msgspec.structs import replace
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import ConsumerInfo
from nats.js.errors import APIError, NotFoundError, ServiceUnavailableError

from slipstream.bus.drivers.driver import Finding, Outgoing, Source, Stored, TopicInfo, post_each
from slipstream.bus.drivers.local_retries import LocalRetries
from slipstream.bus.drivers.nats.connection import Connection
from slipstream.bus.drivers.nats.context import NOT_ENABLED, Context
from slipstream.bus.drivers.nats.errors import FAILURES, Denied, translate
from slipstream.bus.drivers.nats.examination import examine
from slipstream.bus.drivers.nats.follow import Follower, reading, stored
from slipstream.bus.drivers.nats.place import place_of
from slipstream.bus.drivers.nats.publisher import Publisher
from slipstream.bus.drivers.nats.source import JetStreamSource
from slipstream.bus.drivers.nats.streams import Streams
from slipstream.bus.drivers.nats.survey import survey
from slipstream.bus.drivers.nats.tap import tap
from slipstream.bus.errors import BusUnavailable, InvalidArgument, TopicMissing
from slipstream.bus.options import SubscribeOptions, seconds
from slipstream.bus.settings import BusSettings

log = logging.getLogger(__name__)

READ_MESSAGES = 500
READ_MESSAGES_FIRST = 8
"""Size of the first batch of a read, in messages: many readers need only the first message."""
READ_WAIT_S = 1.0
"""How long a read waits for a batch before it asks the server whether messages are left: those ahead may expire."""
READ_WAITS_MAX = 10
"""How many times in a row a read waits in vain while the server reports messages."""
DELETE_FAILED = 10057
"""Error code of the server, which also stands for a message that is not there any more."""
NOT_ENABLED_TEXT = (
    "JetStream is not enabled on this NATS server: start it with -js, or set NATS_JETSTREAM=false for at-most-once"
)


class JetStreamDriver:
    name = "nats"

    def __init__(self, settings: BusSettings) -> None:
        self._settings = settings
        self._connection = Connection(settings)
        self._js: JetStreamContext
        self._streams: Streams
        self._publisher: Publisher | None = None
        self._followers: set[Follower] = set()

    @property
    def native(self) -> JetStreamContext:
        """nats-py's JetStream context; `native._nc` is not needed: `bus.native.publish` and the rest are there."""
        return self._js

    async def open(self) -> None:
        await self._connection.open()
        try:
            self._js = Context(self._connection, self._settings.connect_timeout_ms / 1000)
            self._streams = Streams(self._js, self._settings)
            await self._check_enabled()
            timeout_s = self._settings.publish_timeout_ms / 1000
            self._publisher = Publisher(self._connection, self._streams.ensure, timeout_s)
            await self._publisher.open()
        except BaseException:
            await self._connection.close()
            raise

    async def _check_enabled(self) -> None:
        try:
            await self._js.account_info()
        except ServiceUnavailableError as error:
            if error.err_code is None or error.err_code in NOT_ENABLED:
                raise BusUnavailable(NOT_ENABLED_TEXT) from error
            raise translate(error, "asking for JetStream") from error
        except (APIError, Denied, TimeoutError) as error:
            # Who may not ask may still be allowed to publish.
            log.info("NATS: whether JetStream is enabled is not told: %s", error)
        except FAILURES as error:
            raise translate(error, "asking for JetStream") from error

    async def close(self) -> None:
        if self._publisher is not None:
            await self._publisher.close()
        await self._connection.close()
        for follower in self._followers:
            follower.wake()

    async def post(self, message: Outgoing) -> asyncio.Future[str]:
        assert self._publisher is not None, "the bus is open"
        return await self._publisher.post(message)

    async def post_all(self, messages: Sequence[Outgoing]) -> asyncio.Future[Any]:
        return await post_each(self, messages)

    async def subscribe(self, topic: str, group: str, options: SubscribeOptions) -> Source:
        if options.dead_letter_topic:
            await self._streams.of(options.dead_letter_topic)

        async def join() -> tuple[str, str, str, float]:
            stream = await self._streams.of(topic)
            info = await self._streams.consumer(stream, topic, group, options)
            ack_wait_s = info.config.ack_wait or seconds(options.ack_deadline)
            return stream, info.name, await self._streams.made_at(stream), ack_wait_s

        async def rejoin() -> str:
            """Return at once where both are still there, as after an election."""
            with contextlib.suppress(TopicMissing):
                return await self._streams.check(stream, consumer)
            self._streams.forget(topic)
            _, _, made_at, _ = await join()
            return made_at

        stream, consumer, made_at, ack_wait_s = await join()
        source = JetStreamSource(self._connection, self._js, topic, stream, consumer, made_at, rejoin)
        await source.open()
        # JetStream counts every delivery, and a nak with a delay makes another: a postponed message waits here.
        return LocalRetries(source, 1, self._settings.max_unfinished, has_retries=True, renew_s=ack_wait_s / 3)

    async def ensure_group(self, topic: str, group: str, options: SubscribeOptions) -> None:
        making = Streams(self._js, replace(self._settings, ensure=True))
        if options.dead_letter_topic:
            await making.of(options.dead_letter_topic)
        await making.consumer(await making.of(topic), topic, group, options)

    async def topic(self, topic: str) -> TopicInfo | None:
        return await self._streams.info(topic)

    async def topics(self, prefix: str) -> list[str]:
        return [each.topic for each in await survey(self._js, prefix)]

    async def remove(self, topic: str, partition: int, offset: int) -> bool:
        stream = await self._streams.find(topic)
        try:
            await self._js.delete_msg(stream, offset)
        except NotFoundError:
            pass
        except APIError as error:
            if error.err_code != DELETE_FAILED or "no message" not in (error.description or ""):
                raise translate(error, f"removing message {offset} of {topic}") from error
        except FAILURES as error:
            raise translate(error, f"removing message {offset} of {topic}") from error
        return True

    async def groups(self, topic: str) -> list[str]:
        return await self._streams.groups(topic)

    async def ensure_topic(
        self,
        topic: str,
        partitions: int | None = None,
        retention_ms: int | None = None,
        retention_bytes: int | None = None,
    ) -> None:
        """A stream is one partition, whatever was asked for: order is kept without any."""
        await self._streams.make(topic, retention_ms, retention_bytes)

    async def adjust_topic(
        self, topic: str, partitions: int | None, retention_ms: int | None, retention_bytes: int | None
    ) -> TopicInfo:
        return await self._streams.adjust(topic, retention_ms, retention_bytes)

    async def read(self, topic: str, partition: int, start: int, end: int | None) -> AsyncGenerator[Stored, None]:
        """Offsets are sequences of the stream, which begin at 1."""
        _check_partition(partition)
        stream = await self._streams.find(topic)
        try:
            async with contextlib.aclosing(self._messages(topic, stream, start)) as messages:
                async for msg in messages:
                    place = place_of(msg.reply)
                    if end is not None and place.stream_sequence >= end:
                        return
                    yield stored(msg, place)
        except FAILURES as error:
            raise translate(error, f"reading {topic}") from error

    async def _messages(self, topic: str, stream: str, start: int) -> AsyncGenerator[Msg, None]:
        """Yield the messages that are there now, through a consumer that acks nothing and is deleted afterwards."""
        info = await self._js.add_consumer(stream, reading(topic, start))
        subscription = await self._js.pull_subscribe_bind(consumer=info.name, stream=stream)
        try:
            there, got, batch, in_vain = info.num_pending or 0, 0, READ_MESSAGES_FIRST, 0
            while got < there:
                try:
                    found = await subscription.fetch(min(there - got, batch), timeout=READ_WAIT_S)
                except TimeoutError:
                    in_vain += 1
                    if in_vain > READ_WAITS_MAX:
                        raise
                    there = min(there, _sent_or_pending(await self._js.consumer_info(stream, info.name)))
                    continue
                got, batch, in_vain = got + len(found), min(2 * batch, READ_MESSAGES), 0
                for msg in found:
                    yield msg
        finally:
            await subscription.unsubscribe()
            with contextlib.suppress(NotFoundError):  # it was idle for too long, and is gone already
                await self._js.delete_consumer(stream, info.name)

    async def follow(self, topic: str, partition: int, start: int) -> AsyncGenerator[list[Stored], None]:
        _check_partition(partition)
        follower = Follower(self._connection, self._js, self._streams, topic, start)
        self._followers.add(follower)
        try:
            async with contextlib.aclosing(follower.batches()) as batches:
                async for batch in batches:
                    yield batch
        finally:
            self._followers.discard(follower)

    def tap(self, prefix: str, listening: asyncio.Event | None = None) -> AsyncGenerator[Stored, None]:
        return tap(self._connection, prefix, listening)

    def examine(self, prefix: str) -> AsyncIterator[Finding]:
        return examine(self._settings, prefix)


def _sent_or_pending(info: ConsumerInfo) -> int:
    """Return how many messages a consumer has sent or is still to send."""
    return (0 if info.delivered is None else info.delivered.consumer_seq) + (info.num_pending or 0)


def _check_partition(partition: int) -> None:
    if partition != 0:
        raise InvalidArgument(f"a stream has one partition, 0, and no {partition}")
