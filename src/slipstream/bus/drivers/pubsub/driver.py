"""The driver: what the bus asks for, given to those who do it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any

from msgspec.structs import replace

from slipstream.bus.drivers.driver import Finding, Outgoing, Source, Stored, TopicInfo, post_each
from slipstream.bus.drivers.local_retries import LocalRetries
from slipstream.bus.drivers.pubsub.connection import PubSubNative, connect, probe
from slipstream.bus.drivers.pubsub.examination import examine
from slipstream.bus.drivers.pubsub.names import check_topic
from slipstream.bus.drivers.pubsub.publisher import Publisher
from slipstream.bus.drivers.pubsub.source import PubSubSource
from slipstream.bus.drivers.pubsub.subscriptions import Subscriptions
from slipstream.bus.drivers.pubsub.tap import Tap
from slipstream.bus.errors import BusUnavailable, TopicMissing, Unsupported
from slipstream.bus.options import SubscribeOptions
from slipstream.bus.settings import BusSettings


class PubSubDriver:
    """Google Pub/Sub, or an emulator of it."""

    name = "pubsub"

    def __init__(self, settings: BusSettings) -> None:
        self._settings = settings
        self._native: PubSubNative | None = None
        self._publisher: Publisher
        self._subscriptions: Subscriptions
        self._checked: set[str] = set()
        self._taps: set[Tap] = set()

    @property
    def native(self) -> PubSubNative:
        assert self._native is not None, "the driver is not open"
        return self._native

    async def open(self) -> None:
        timeout_s = self._settings.connect_timeout_ms / 1000
        try:
            async with asyncio.timeout(timeout_s):
                native = await asyncio.to_thread(connect, self._settings)  # asks the network for credentials, maybe
        except TimeoutError as error:
            raise BusUnavailable(f"there were no Google credentials to be had in {timeout_s:g} s") from error
        try:
            await asyncio.to_thread(probe, native, timeout_s)
        except BaseException:
            native.close()
            raise
        self._native = native
        self._subscriptions = Subscriptions(native, self._settings)
        self._publisher = Publisher(self._settings, native.publisher_channel, native.topic_path, self._make_topic)

    async def close(self) -> None:
        if self._native is None:
            return
        for tap in list(self._taps):
            await tap.close()
        await self._publisher.close()
        await asyncio.to_thread(self._native.close)

    # Publishing

    async def post(self, message: Outgoing) -> asyncio.Future[str]:
        if message.topic not in self._checked:
            check_topic(message.topic)
            self._checked.add(message.topic)
        return self._publisher.post(message)

    async def _make_topic(self, topic: str) -> None:
        """For a message that found none."""
        if not self._settings.ensure:
            raise TopicMissing(
                f"there is no topic {topic} in project {self.native.project}, and BUS_ENSURE is false: create it"
            )
        await self.ensure_topic(topic)

    # Topics

    async def topic(self, topic: str) -> TopicInfo | None:
        return await asyncio.to_thread(self._subscriptions.topic, topic)

    async def adjust_topic(
        self, topic: str, partitions: int | None, retention_ms: int | None, retention_bytes: int | None
    ) -> TopicInfo:
        """Pub/Sub has no partitions, and no limit but time."""
        return await asyncio.to_thread(self._subscriptions.adjust_topic, topic, retention_ms)

    async def topics(self, prefix: str) -> list[str]:
        return sorted(await asyncio.to_thread(self._subscriptions.topics, prefix))

    async def remove(self, topic: str, partition: int, offset: int) -> bool:
        return False

    async def groups(self, topic: str) -> list[str]:
        return await asyncio.to_thread(self._subscriptions.groups, topic)

    async def ensure_topic(
        self,
        topic: str,
        partitions: int | None = None,
        retention_ms: int | None = None,
        retention_bytes: int | None = None,
    ) -> None:
        """Pub/Sub has no partitions, and no limit but time."""
        if await asyncio.to_thread(self._subscriptions.make_topic, topic, retention_ms):
            for tap in list(self._taps):
                await tap.follow(topic)

    async def post_all(self, messages: Sequence[Outgoing]) -> asyncio.Future[Any]:
        return await post_each(self, messages)

    # Subscribing

    async def subscribe(self, topic: str, group: str, options: SubscribeOptions) -> Source:
        def join() -> str:
            return self._subscriptions.join(topic, group, options)

        subscription = await asyncio.to_thread(join)
        restore = join if self._settings.ensure else None
        source = PubSubSource(self.native.subscriber_channel, subscription, topic, options, restore)
        return LocalRetries(source, options.max_in_flight, self._settings.max_unfinished, places=source)

    async def ensure_group(self, topic: str, group: str, options: SubscribeOptions) -> None:
        making = Subscriptions(self.native, replace(self._settings, ensure=True))
        await asyncio.to_thread(making.join, topic, group, options)

    # The rest

    def read(self, topic: str, partition: int, start: int, end: int | None) -> AsyncGenerator[Stored, None]:
        raise Unsupported(
            f"Pub/Sub keeps no log, so {topic} cannot be read: subscribe to it, or tap what passes; what was published "
            "before is only to be had by a subscription that was there"
        )

    def follow(self, topic: str, partition: int, start: int) -> AsyncGenerator[list[Stored], None]:
        raise Unsupported(f"Pub/Sub keeps no log, so {topic} cannot be followed: subscribe to it, or tap what passes")

    async def tap(self, prefix: str, listening: asyncio.Event | None = None) -> AsyncGenerator[Stored, None]:
        tap = Tap(self.native, self._subscriptions, prefix)
        self._taps.add(tap)
        try:
            async for stored in tap.passing(listening):
                yield stored
        finally:
            self._taps.discard(tap)
            await tap.close()

    def examine(self, prefix: str) -> AsyncIterator[Finding]:
        return examine(self._settings, prefix)
