"""Messages of a topic for a group, straight from the broker of this process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from slipstream.broker import Broker, BrokerError, Consumer, FailedPrecondition, NotFound
from slipstream.broker import Delivery as BrokerDelivery
from slipstream.bus.drivers.driver import Delivery
from slipstream.bus.drivers.embedded.errors import translate
from slipstream.bus.options import SubscribeOptions, seconds
from slipstream.engine import Answer

if TYPE_CHECKING:
    from slipstream.bus.drivers.embedded.driver import EmbeddedDriver

log = logging.getLogger(__name__)

FAILURE_LOOK_S = 1.0


class Handle(NamedTuple):
    """Which message, whatever has its place by now."""

    topic_id: int
    partition: int
    offset: int


Settlement: TypeAlias = Callable[[Answer], object]


class EmbeddedSource:
    """A consumer of the broker that is given credit for as many messages as there are free slots."""

    def __init__(self, driver: EmbeddedDriver, topic: str, group: str, options: SubscribeOptions) -> None:
        self._driver = driver
        self._engine = driver.native
        self._topic = topic
        self._group = group
        self._owner = f"bus-{os.getpid()}-{secrets.token_hex(4)}"
        self._lease_ms = max(1, round(seconds(options.ack_deadline) * 1000))
        self._arrived: list[Delivery] = []
        self._on_the_way = 0
        """Deliveries that wait for the journal."""
        self._something = asyncio.Event()
        self._leaving = False
        self._stopped = False
        self._consumer: Consumer | None = None
        self._first_topic_id = self.join()

    def join(self) -> int:
        """Returns the number of the topic; raises BrokerError."""
        self._consumer = self._engine.attach(self._topic, self._group, self._owner, self._lease_ms, self, credit=0)
        return self._consumer.group.topic.id

    # From the engine

    def deliver(self, deliveries: list[BrokerDelivery]) -> None:
        """Handed on once the attempt is counted where a crash cannot undo it: the handler runs in the broker's process,
        and a message that kills it must not come as a first attempt for ever."""
        self._on_the_way += 1
        self._engine.when_written(lambda: self._hand_on(deliveries))

    def _hand_on(self, deliveries: list[BrokerDelivery]) -> None:
        self._on_the_way -= 1
        for delivery in deliveries:
            record = delivery.record
            handle = Handle(delivery.consumer.group.topic.id, delivery.partition, record.offset)
            self._arrived.append(
                Delivery(
                    id=self._id(handle),
                    topic=self._topic,
                    data=record.value,
                    attributes=dict(delivery.meta.attributes or {}),
                    key=record.key.decode(errors="replace"),
                    attempt=delivery.attempts,
                    published_ms=record.timestamp_ms,
                    handle=handle,
                    partition=handle.partition,
                    offset=handle.offset,
                )
            )
        self._something.set()

    def _id(self, handle: Handle) -> str:
        """A topic that is deleted and made again has other messages at the same places."""
        place = f"{handle.partition}/{handle.offset}"
        return place if handle.topic_id == self._first_topic_id else f"{place}@{handle.topic_id}"

    def ended(self) -> None:
        """The topic was deleted: it is made again, or waited for."""
        self._consumer = None
        self._something.set()

    # For the subscription

    @property
    def trouble(self) -> str:
        return ""  # there is nothing between us that could be lost; a journal that has failed is raised

    async def pull(self, limit: int) -> Sequence[Delivery]:
        if not self._arrived and not self._leaving:
            if self._consumer is None:
                await self._rejoin()
            if self._consumer is not None:
                self._consumer.credit = limit
                self._engine.reopen(self._consumer)
            await self._news()
        while not self._arrived and (self._on_the_way or self._leaving != self._stopped):
            await self._news()
        arrived, self._arrived = self._arrived[:limit], self._arrived[limit:]
        if self._consumer is not None:
            self._consumer.credit = 0  # until the next pull says how many there is room for
        return arrived

    async def _news(self) -> None:
        """Raises BusUnavailable once the journal has failed: nothing will come, and nobody else says so."""
        self._something.clear()
        while not self._something.is_set():
            if self._engine.failure is not None and not self._leaving:
                raise translate(self._engine.failure)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FAILURE_LOOK_S):
                    await self._something.wait()

    async def _rejoin(self) -> None:
        log.warning("%s was deleted under its subscriber of group %s", self._topic, self._group)
        while not self._leaving and self._consumer is None:
            try:
                await self._driver.ready(self._topic)
                self.join()
            except NotFound:
                continue  # deleted once more
            except BrokerError as error:
                raise translate(error) from error

    async def ack(self, delivery: Delivery) -> None:
        await self._settle(delivery, lambda answer: self._engine.ack(answer, *self._names(delivery), self._owner))

    async def nack(self, delivery: Delivery, delay_s: float, reason: str) -> None:
        await self._nack(delivery, delay_s, reason, counted=True)

    async def postpone(self, delivery: Delivery, delay_s: float, reason: str) -> None:
        await self._nack(delivery, delay_s, reason, counted=False)

    async def _nack(self, delivery: Delivery, delay_s: float, reason: str, *, counted: bool) -> None:
        delay_ms = round(delay_s * 1000)
        await self._settle(
            delivery,
            lambda answer: self._engine.run(
                answer,
                lambda broker, now_ms: broker.nack(
                    now_ms, *self._names(delivery), self._owner, reason, delay_ms=delay_ms, counted=counted
                ),
            ),
        )

    async def extend(self, deliveries: Sequence[Delivery], deadline_s: float) -> Sequence[Delivery]:
        lease_ms = max(1, round(deadline_s * 1000))

        def extend_all(broker: Broker, now_ms: int) -> list[Delivery]:
            lost = []
            for delivery in deliveries:
                try:
                    broker.extend(now_ms, *self._names(delivery), self._owner, lease_ms)
                except (FailedPrecondition, NotFound):
                    lost.append(delivery)
            return lost

        try:
            return await self._engine.perform(extend_all)
        except BrokerError as error:
            raise translate(error) from error

    async def _settle(self, delivery: Delivery, command: Settlement) -> None:
        answer = Answer()
        try:
            command(answer)
            await answer
        except (FailedPrecondition, NotFound) as error:
            # The lease ran out and it is another's, or its topic was deleted: whichever it is, it is out of our hands.
            log.warning("the result for %s of %s does not count: %s", delivery.id, self._topic, error)
        except BrokerError as error:
            raise translate(error) from error

    def _names(self, delivery: Delivery) -> tuple[str, str, int, int]:
        """Raises NotFound where the topic is not the one that the message was in."""
        handle: Handle = delivery.handle
        if handle.topic_id not in self._engine.broker.state.topics_by_id:
            raise NotFound(f"{self._topic} was deleted meanwhile")
        return self._topic, self._group, handle.partition, handle.offset

    async def lag(self) -> int | None:
        topic = self._engine.broker.state.topics.get(self._topic)
        group = topic.groups.get(self._group) if topic is not None else None
        return sum(progress.lag for progress in group.progress) if group is not None else None

    async def stop(self) -> None:
        self._leaving = True
        self._leave()
        try:
            # What the broker has handed out in this turn of the loop is sent at the end of it, to us.
            await self._engine.perform(lambda broker, now_ms: None)
        except BrokerError:
            self._on_the_way = 0  # the journal has failed: what waits for it never comes
        self._stopped = True
        self._something.set()

    async def close(self) -> None:
        self._leave()

    def _leave(self) -> None:
        if self._consumer is not None:
            consumer, self._consumer = self._consumer, None
            self._engine.detach(consumer)
