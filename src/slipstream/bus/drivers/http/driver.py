"""A Slipstream server as the engine of a bus."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any

from slipstream.api import (
    CreateTopicRequest,
    EnvelopeFields,
    Placed,
    ProduceMessage,
    RetryPolicyFields,
    TopicConfigFields,
    TopicList,
)
from slipstream.api import TopicInfo as ServerTopic
from slipstream.bus.drivers.driver import Finding, Outgoing, Stored, TopicInfo, post_each
from slipstream.bus.drivers.http.errors import as_bus_errors, bus_error, publish_error
from slipstream.bus.drivers.http.examination import examination
from slipstream.bus.drivers.http.follow import read_on, stored
from slipstream.bus.drivers.http.poster import Poster
from slipstream.bus.drivers.http.source import HttpSource
from slipstream.bus.drivers.http.tap import Tap
from slipstream.bus.errors import BusUnavailable, InvalidArgument
from slipstream.bus.options import SubscribeOptions, seconds
from slipstream.bus.settings import BusSettings
from slipstream.client.async_client import AsyncClient
from slipstream.client.errors import InvalidArgument as Refused
from slipstream.client.errors import NotFound, ProduceFailed, SlipstreamError
from slipstream.client.producer import ProducerLimits, size_of
from slipstream.client.retry import Repeat, Retries

BACKOFF_MS_MAX = 1_000
"""Between attempts at a server that is away: a message should not wait for long after it is back."""

ADVICE = "start one with: slipstream serve, or set SLIPSTREAM_URL"


class HttpDriver:
    name = "http"

    def __init__(self, settings: BusSettings) -> None:
        self._settings = settings
        with as_bus_errors():
            self._client = AsyncClient(settings.url, backoff_ms_max=BACKOFF_MS_MAX)
        self._posters: dict[str, Poster] = {}
        self._sources = itertools.count(1)

    @property
    def native(self) -> AsyncClient:
        return self._client

    async def open(self) -> None:
        try:
            await self._connect()
        except BaseException:
            await self._client.close()
            raise

    async def _connect(self) -> None:
        """The list of topics is what other servers do not have."""
        for_ms = self._settings.connect_timeout_ms
        retries = Retries(for_ms=for_ms, backoff_ms_max=BACKOFF_MS_MAX)
        transport = self._client._transport
        try:
            async with asyncio.timeout(for_ms / 1000):
                await transport.call("GET", "/v2/topics", TopicList, Repeat.SAFE, retries=retries)
        except TimeoutError as error:
            raise BusUnavailable(f"no answer from {transport.shown} in {for_ms / 1000:g} s; {ADVICE}") from error
        except SlipstreamError as error:
            trouble = bus_error(error)
            if isinstance(trouble, BusUnavailable):
                reason = str(error).removesuffix("; is the server running there?")
                raise type(trouble)(f"{reason}; {ADVICE}") from error
            is_of_a_broker = error.code or not error.status
            what = str(error) if is_of_a_broker else f"it answered GET /v2/topics with {error.status}"
            raise BusUnavailable(f"{transport.shown} is no Slipstream server: {what}; {ADVICE}") from error

    async def close(self) -> None:
        for poster in self._posters.values():
            with contextlib.suppress(ProduceFailed):  # who published has been told
                await poster.close()
        with as_bus_errors():
            await self._client.close()

    # Publishing

    async def post(self, message: Outgoing) -> asyncio.Future[str]:
        topic = message.topic
        poster = self._posters.get(topic)
        if poster is None:
            poster = self._posters[topic] = self._poster(topic)
        outgoing = ProduceMessage(
            value=message.data,
            key=message.key.encode() or None,
            attributes=message.attributes or None,
            envelope=EnvelopeFields(idempotency_key=message.message_id) if message.message_id else None,
        )
        with as_bus_errors():
            placed = await poster.take(outgoing, size_of(outgoing))
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        placed.add_done_callback(functools.partial(_tell, future, topic))
        return future

    def _poster(self, topic: str) -> Poster:
        limits = ProducerLimits(
            linger_ms=0,
            max_buffered_messages=self._settings.max_buffered_messages,
            retry_for_ms=self._settings.publish_timeout_ms,
        )
        return Poster(self._client, topic, limits, self._make_topic if self._settings.ensure else None)

    async def post_all(self, messages: Sequence[Outgoing]) -> asyncio.Future[Any]:
        return await post_each(self, messages)

    # Subscribing

    async def subscribe(self, topic: str, group: str, options: SubscribeOptions) -> HttpSource:
        with as_bus_errors():
            for name in filter(None, (topic, options.dead_letter_topic)):
                if self._settings.ensure:
                    await self._make_topic(name, None)
                else:
                    await self._client.topic(name)  # what is missing is said now, and not when a message is to go there
        return HttpSource(
            self._client,
            topic,
            group,
            # Each its own: two subscribers of a group here must not finish, or prolong, what is the other's by now.
            owner=f"{self._client.owner}-{next(self._sources)}",
            deadline_s=seconds(options.ack_deadline),
            make_topic=self._make_topic if self._settings.ensure else None,
        )

    async def ensure_group(self, topic: str, group: str, options: SubscribeOptions) -> None:
        for name in filter(None, (topic, options.dead_letter_topic)):
            await self.ensure_topic(name)
        with as_bus_errors():
            try:
                await self._client.group(topic, group)
            except NotFound:
                await self._client.seek(topic, group, to="earliest")  # which creates it

    # Topics

    async def topic(self, topic: str) -> TopicInfo | None:
        with as_bus_errors():
            try:
                return _info(await self._client.topic(topic))
            except NotFound:
                return None

    async def topics(self, prefix: str) -> list[str]:
        with as_bus_errors():
            return sorted(each.name for each in await self._client.topics() if each.name.startswith(prefix))

    async def remove(self, topic: str, partition: int, offset: int) -> bool:
        """A journal forgets by time and size only."""
        return False

    async def groups(self, topic: str) -> list[str]:
        with as_bus_errors():
            try:
                return sorted(each.group for each in await self._client.groups(topic))
            except NotFound:
                return []

    async def ensure_topic(
        self,
        topic: str,
        partitions: int | None = None,
        retention_ms: int | None = None,
        retention_bytes: int | None = None,
    ) -> None:
        with as_bus_errors():
            await self._make_topic(topic, None, partitions, retention_ms, retention_bytes)

    async def adjust_topic(
        self, topic: str, partitions: int | None, retention_ms: int | None, retention_bytes: int | None
    ) -> TopicInfo:
        config = TopicConfigFields(retention_ms=retention_ms, retention_bytes=retention_bytes)
        with as_bus_errors():
            try:
                changed = await self._client.change_topic(topic, config=config, partitions=partitions)
            except Refused:
                if partitions is None:
                    raise
                # Fewer than there are, say: the rest is changed all the same.
                changed = await self._client.change_topic(topic, config=config)
        return _info(changed)

    async def _make_topic(
        self,
        topic: str,
        retries: Retries | None,
        partitions: int | None = None,
        retention_ms: int | None = None,
        retention_bytes: int | None = None,
    ) -> None:
        settings = self._settings
        config = TopicConfigFields(
            # With the server's 256 the retries of a bad hour would keep the rest waiting.
            max_in_flight=settings.max_unfinished,
            # Attempts are counted by the subscriber, who also buries. What a consumer that died held comes at once.
            retry=RetryPolicyFields(max_attempts=0, backoff_ms=0),
            retention_ms=settings.retention_ms if retention_ms is None else retention_ms,
            retention_bytes=retention_bytes,
        )
        count = settings.partitions if partitions is None else partitions
        await self._client._create_topic(
            CreateTopicRequest(name=topic, partitions=count, config=config), retries or self._client.retries
        )

    # Looking

    async def read(self, topic: str, partition: int, start: int, end: int | None) -> AsyncGenerator[Stored, None]:
        if end is not None and end <= start:
            return
        with as_bus_errors():
            await self._check_partition(topic, partition)
            # From 0 is from the oldest there is; any other offset that retention has removed is an error.
            scanned = self._client.scan(topic, partition, from_=start or None, to=end)
            async with contextlib.aclosing(scanned) as messages:
                async for message in messages:
                    yield stored(topic, message)

    async def follow(self, topic: str, partition: int, start: int) -> AsyncGenerator[list[Stored], None]:
        with as_bus_errors():
            await self._check_partition(topic, partition)
            async with contextlib.aclosing(read_on(self._client, topic, partition, start or None)) as batches:
                async for batch in batches:
                    yield batch

    async def _check_partition(self, topic: str, partition: int) -> None:
        count = len((await self._client.topic(topic)).partitions)
        if not 0 <= partition < count:
            raise InvalidArgument(f"{topic} has partitions 0 to {count - 1}, and no {partition}")

    async def tap(self, prefix: str, listening: asyncio.Event | None = None) -> AsyncGenerator[Stored, None]:
        async with contextlib.aclosing(Tap(self._client, prefix).messages(listening)) as messages:
            async for message in messages:
                yield message

    async def examine(self, prefix: str) -> AsyncIterator[Finding]:
        try:
            async for finding in examination(self._client, prefix, self._connect, ensure=self._settings.ensure):
                yield finding
        finally:
            await self._client.close()


def _info(topic: ServerTopic) -> TopicInfo:
    config = topic.config
    return TopicInfo(topic.name, len(topic.partitions), config.retention_ms, config.retention_bytes)


def _tell(future: asyncio.Future[str], topic: str, placed: asyncio.Future[Placed]) -> None:
    if future.done():
        return  # nobody waits for it any more
    error = placed.exception()
    if error is None:
        place = placed.result()
        future.set_result(f"{place.partition}/{place.offset}")
    else:
        future.set_exception(publish_error(error, topic))
