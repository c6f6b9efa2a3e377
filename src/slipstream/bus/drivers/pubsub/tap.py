"""Listening in: a subscription of its own for each topic, gone when nobody listens any more."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncGenerator
from datetime import timedelta
from typing import Any

from slipstream.bus.drivers.driver import NO_OFFSET, Delivery, Stored
from slipstream.bus.drivers.pubsub.connection import PubSubNative
from slipstream.bus.drivers.pubsub.errors import GOOGLE_ERRORS, bus_error
from slipstream.bus.drivers.pubsub.source import PubSubSource
from slipstream.bus.drivers.pubsub.subscriptions import LEASE_S_MIN, Subscriptions
from slipstream.bus.errors import BusError
from slipstream.bus.options import SubscribeOptions

log = logging.getLogger(__name__)

LISTING_PAUSE_S = 1.0
BUFFERED_MAX = 1_000
OPTIONS = SubscribeOptions(max_in_flight=BUFFERED_MAX, ack_deadline=LEASE_S_MIN)
CONFIG: dict[str, Any] = {
    "ack_deadline_seconds": LEASE_S_MIN,
    "message_retention_duration": timedelta(minutes=10),
    # The least that Pub/Sub takes: should this process be killed, that is when its subscriptions are gone.
    "expiration_policy": {"ttl": timedelta(days=1)},
}


class Tap:
    """What is published to topics with the prefix. Topics that others make are found by looking every second, so what
    is published to one in its first second may be missed; those that this bus makes are known at once (`follow`)."""

    def __init__(self, native: PubSubNative, subscriptions: Subscriptions, prefix: str) -> None:
        self.prefix = prefix
        self._native = native
        self._subscriptions = subscriptions
        self._passing: asyncio.Queue[Stored | BusError] = asyncio.Queue(BUFFERED_MAX)
        self._names: dict[str, str] = {}
        """Of the subscription for each topic; it is there, or about to be."""
        self._sources: list[PubSubSource] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing: asyncio.Future[None] | None = None

    async def passing(self, listening: asyncio.Event | None) -> AsyncGenerator[Stored, None]:
        await self._follow_all()
        if listening is not None:
            listening.set()
        self._start(self._look_for_topics())
        while True:
            stored = await self._passing.get()
            if isinstance(stored, BusError):
                raise stored
            yield stored

    async def follow(self, topic: str) -> None:
        """From when this returns, what is published to the topic is seen."""
        if topic in self._names or self._closing is not None or not topic.startswith(self.prefix):
            return
        name = self._names[topic] = f"tap-{uuid.uuid4().hex}"
        try:
            await asyncio.to_thread(self._subscriptions.create, topic, name, CONFIG)
        except GOOGLE_ERRORS as error:
            del self._names[topic]
            raise bus_error(error, f"{topic} cannot be tapped") from error
        source = PubSubSource(
            self._native.subscriber_channel, self._native.subscription_path(name), topic, OPTIONS, None
        )
        self._sources.append(source)
        self._start(self._pass_on(source))

    def _start(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _follow_all(self) -> None:
        for topic in await asyncio.to_thread(self._subscriptions.topics, self.prefix):
            await self.follow(topic)

    async def _look_for_topics(self) -> None:
        was_well = True
        while True:
            await asyncio.sleep(LISTING_PAUSE_S)
            try:
                await self._follow_all()
                was_well = True
            except BusError as error:
                log.log(logging.WARNING if was_well else logging.DEBUG, "pubsub: new topics are not seen: %s", error)
                was_well = False

    async def _pass_on(self, source: PubSubSource) -> None:
        while True:
            for delivery in await source.pull(BUFFERED_MAX):
                await self._passing.put(_stored(delivery))
                try:
                    await source.ack(delivery)
                except BusError as error:
                    log.debug("pubsub: a tapped message may be seen twice: %s", error)

    async def close(self) -> None:
        """Nobody is kept from this by being cancelled: it would leave subscriptions behind that fill up."""
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(source.close() for source in self._sources), return_exceptions=True)
        for name in self._names.values():
            try:
                await asyncio.to_thread(self._subscriptions.delete, name)
            except BusError as error:
                log.warning("pubsub: %s; it expires in a day", error)


def _stored(delivery: Delivery) -> Stored:
    """There are neither partitions nor offsets."""
    return Stored(
        topic=delivery.topic,
        partition=0,
        offset=NO_OFFSET,
        data=delivery.data,
        attributes=delivery.attributes,
        key=delivery.key,
        published_ms=delivery.published_ms,
    )
