"""The driver of core NATS, without JetStream: at most once. It carries, and stores nothing."""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription as NatsSubscription
from nats.errors import Error as NatsError

from slipstream.bus.drivers.driver import Delivery, Finding, Outgoing, Stored, TopicInfo, post_each
from slipstream.bus.drivers.local_retries import LocalRetries
from slipstream.bus.drivers.nats.connection import Connection
from slipstream.bus.drivers.nats.errors import FAILURES, translate
from slipstream.bus.drivers.nats.examination import examine
from slipstream.bus.drivers.nats.headers import MESSAGE_ID, to_headers
from slipstream.bus.drivers.nats.tap import overheard, tap
from slipstream.bus.errors import Unauthorized, Unsupported
from slipstream.bus.options import SubscribeOptions
from slipstream.bus.settings import BusSettings

log = logging.getLogger(__name__)

NO_LOG = "core NATS keeps no log: set NATS_JETSTREAM=true"
WAITING_MAX = 65_536
"""Messages that may wait for a free slot; what comes above that is dropped, and said."""


class CoreDriver:
    name = "nats"

    def __init__(self, settings: BusSettings) -> None:
        self._settings = settings
        self._connection = Connection(settings)
        self._name = secrets.token_hex(8)
        self._numbers = itertools.count(1)
        self._unflushed: list[tuple[asyncio.Future[str], str, str]] = []
        self._denied: set[str] = set()
        """Topics that are not for us: the server says so before it answers the flush, and drops what was published."""
        self._connection.on_denied.append(self._on_denied)
        self._flushing: asyncio.Task[None] | None = None

    @property
    def native(self) -> Client:
        """nats-py's client."""
        return self._connection.nats

    async def open(self) -> None:
        await self._connection.open()

    async def close(self) -> None:
        if self._flushing is not None:
            await asyncio.wait({self._flushing})
        await self._connection.close()

    async def post(self, message: Outgoing) -> asyncio.Future[str]:
        """Done when the server has it: what it then does with it depends on who listens."""
        message_id = message.message_id or f"{self._name}-{next(self._numbers)}"
        headers = to_headers(message.attributes, message.key, message_id)
        try:
            await self.native.publish(message.topic, message.data, headers=headers)
        except NatsError as error:
            raise translate(error, f"publishing to {message.topic}") from error
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._unflushed.append((future, message_id, message.topic))
        if self._flushing is None or self._flushing.done():
            self._flushing = asyncio.create_task(self._flush())
        return future

    async def _flush(self) -> None:
        """One round trip for all that was published since the last."""
        while self._unflushed:
            posted, self._unflushed = self._unflushed, []
            self._denied.clear()
            failure: Exception | None = None
            try:
                await self.native.flush(timeout=self._settings.publish_timeout_ms / 1000)  # type: ignore[arg-type]
            except FAILURES as error:
                failure = error
            for future, message_id, topic in posted:
                if future.done():
                    continue
                if topic.lower() in self._denied:
                    future.set_exception(Unauthorized(f"publishing to {topic}: no permission for this subject"))
                elif failure is None:
                    future.set_result(message_id)
                else:
                    future.set_exception(translate(failure, "publishing"))

    def _on_denied(self, what: str, subject: str) -> None:
        if what == "publish":
            self._denied.add(subject)

    async def post_all(self, messages: Sequence[Outgoing]) -> asyncio.Future[Any]:
        return await post_each(self, messages)

    async def subscribe(self, topic: str, group: str, options: SubscribeOptions) -> LocalRetries:
        source = CoreSource(self._connection, topic, group, options.max_in_flight)
        await source.open()
        return LocalRetries(source, options.max_in_flight, self._settings.max_unfinished)

    async def ensure_group(self, topic: str, group: str, options: SubscribeOptions) -> None:
        """A queue group is there while somebody is in it; nothing is kept for it before."""

    async def topic(self, topic: str) -> TopicInfo:
        """Every subject is there, with one order, and keeps nothing."""
        return TopicInfo(topic, 1, None, None)

    async def topics(self, prefix: str) -> list[str]:
        raise Unsupported(NO_LOG)

    async def remove(self, topic: str, partition: int, offset: int) -> bool:
        return False

    async def groups(self, topic: str) -> None:
        """A server does not tell the queue groups of a subject."""

    async def ensure_topic(
        self,
        topic: str,
        partitions: int | None = None,
        retention_ms: int | None = None,
        retention_bytes: int | None = None,
    ) -> None:
        """There is nothing to be made."""

    async def adjust_topic(
        self, topic: str, partitions: int | None, retention_ms: int | None, retention_bytes: int | None
    ) -> TopicInfo:
        """Nor to be changed."""
        return await self.topic(topic)

    async def read(self, topic: str, partition: int, start: int, end: int | None) -> AsyncGenerator[Stored, None]:
        # A generator, as on the other drivers.
        raise Unsupported(NO_LOG)
        yield  # type: ignore[unreachable]

    def follow(self, topic: str, partition: int, start: int) -> AsyncGenerator[list[Stored], None]:
        raise Unsupported(NO_LOG)

    def tap(self, prefix: str, listening: asyncio.Event | None = None) -> AsyncGenerator[Stored, None]:
        return tap(self._connection, prefix, listening)

    def examine(self, prefix: str) -> AsyncIterator[Finding]:
        return examine(self._settings, prefix)


class CoreSource:
    """A member of a queue group. There is nothing to settle; retries are held by `LocalRetries`, in this process."""

    def __init__(self, connection: Connection, topic: str, group: str, max_in_flight: int) -> None:
        self._connection = connection
        self._nats = connection.nats
        self._topic = topic
        self._group = group
        # Few: what has no slot yet waits in the client's own queue, which is bounded and says what it drops.
        self._waiting: asyncio.Queue[Delivery | None] = asyncio.Queue(max_in_flight)
        self._stopped = False
        self._subscription: NatsSubscription | None = None

    async def open(self) -> None:
        denied: list[str] = []

        def on_denied(what: str, subject: str) -> None:
            if what == "subscription" and subject == self._topic.lower():
                denied.append(subject)

        self._connection.on_denied.append(on_denied)
        try:
            self._subscription = await self._nats.subscribe(
                self._topic, queue=self._group, cb=self._on_message, pending_msgs_limit=WAITING_MAX
            )
            await self._nats.flush()  # or what is published next, by another, could miss us
        except FAILURES as error:
            raise translate(error, f"subscribing to {self._topic}") from error
        finally:
            self._connection.on_denied.remove(on_denied)
        if denied:
            raise Unauthorized(f"subscribing to {self._topic}: no permission for this subject")

    async def _on_message(self, msg: Msg) -> None:
        stored = overheard(msg)
        headers = msg.headers or {}
        await self._waiting.put(
            Delivery(
                id=headers.get(MESSAGE_ID) or secrets.token_hex(8),
                topic=stored.topic,
                data=stored.data,
                attributes=stored.attributes,
                key=stored.key,
                published_ms=stored.published_ms,
            )
        )

    @property
    def trouble(self) -> str:
        return self._connection.trouble

    async def pull(self, limit: int) -> Sequence[Delivery]:
        arrived: list[Delivery] = []
        while len(arrived) < limit:
            if (arrived or self._stopped) and self._waiting.empty():
                break
            delivery = await self._waiting.get()
            if delivery is None:
                break
            arrived.append(delivery)
        return arrived

    async def ack(self, delivery: Delivery) -> None:
        """Nobody waits for it."""

    async def postpone(self, delivery: Delivery, delay_s: float, reason: str) -> None:
        await self.nack(delivery, delay_s, reason)

    async def nack(self, delivery: Delivery, delay_s: float, reason: str) -> None:
        log.warning("%s of %s is lost: core NATS delivers at most once (%s)", delivery.id, self._topic, reason)

    async def extend(self, deliveries: Sequence[Delivery], deadline_s: float) -> Sequence[Delivery]:
        return ()

    async def lag(self) -> int | None:
        return self._waiting.qsize()

    async def stop(self) -> None:
        """What the server has sent is still handled: nobody would send it again."""
        self._stopped = True
        if self._subscription is not None and not self._nats.is_closed:
            subscription, self._subscription = self._subscription, None
            try:
                await subscription.drain()  # type: ignore[no-untyped-call]
            except FAILURES as error:
                log.info("NATS: leaving %s without a word: %s", self._topic, error or type(error).__name__)
        await self._waiting.put(None)

    async def close(self) -> None:
        """It has been left."""
