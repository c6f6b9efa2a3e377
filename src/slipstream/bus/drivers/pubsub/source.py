"""The messages of a subscription, on lease to one subscriber."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from slipstream.bus.drivers.driver import Delivery
from slipstream.bus.drivers.pubsub.settlements import Settlements
from slipstream.bus.drivers.pubsub.stream import Stream
from slipstream.bus.drivers.pubsub.subscriptions import LEASE_S_MAX, lease_s
from slipstream.bus.errors import BusError
from slipstream.bus.options import SubscribeOptions, seconds

log = logging.getLogger(__name__)

LAST_WORDS_S = 5.0
"""How long the end of a source waits for what is being said to the engine."""


class _Lease:
    """`delivery` is the latest: a message that comes again has another id to ack it with."""

    __slots__ = ("delivery", "ends_at", "has_place", "kept_until")

    def __init__(self, delivery: Delivery, ends_at: float, kept_until: float) -> None:
        self.delivery = delivery
        self.ends_at = ends_at
        """When the engine gives it to another, as far as it can be known here."""
        self.kept_until = kept_until
        """Up to when it is extended."""
        self.has_place = True
        """Whether it counts towards what the engine may have outstanding here."""


class PubSubSource:
    """Whatever has arrived and is not settled is kept on lease, whether a handler is at it, or it waits for one, or for
    its next attempt (`LocalRetries`): until `extend_for` has passed since it was handed out, or the deadline if that is
    longer, or what was asked for with `extend`."""

    def __init__(
        self,
        channel: Any,
        subscription: str,
        topic: str,
        options: SubscribeOptions,
        restore: Callable[[], object] | None,
    ) -> None:
        self.subscription = subscription
        self._topic = topic
        self._loop = asyncio.get_running_loop()
        deadline_s = seconds(options.ack_deadline)
        self._engine_lease_s = lease_s(options)
        self._lease_s = max(1, min(LEASE_S_MAX, math.ceil(deadline_s)))
        """Pub/Sub gives no lease of less than ten seconds; but one that was given may be cut short."""
        self._keep_s = max(seconds(options.extend_for), deadline_s)
        self._leases: dict[str, _Lease] = {}
        self._arrived: deque[_Lease] = deque()
        self._news = asyncio.Event()
        self._leaving = False
        self._stopped = False
        self._settlements = Settlements(channel, subscription, self._engine_lease_s)
        self._stream = Stream(
            channel,
            subscription,
            max_outstanding=options.max_in_flight,
            lease_s=self._engine_lease_s,
            arrive=self._hand_over,
            restore=restore,
        )
        self._renewal = asyncio.create_task(self._renew())
        self._shortening: set[asyncio.Task[None]] = set()

    # Messages

    @property
    def trouble(self) -> str:
        return self._stream.trouble

    async def pull(self, limit: int) -> Sequence[Delivery]:
        while not self._arrived and not self._stopped:
            self._news.clear()
            await self._news.wait()
        taken: list[Delivery] = []
        kept_until = self._loop.time() + self._keep_s
        while self._arrived and len(taken) < limit:
            lease = self._arrived.popleft()
            if self._leases.get(lease.delivery.id) is lease:  # and not lost while it waited here
                lease.kept_until = kept_until
                taken.append(lease.delivery)
        return taken

    def _hand_over(self, received: Sequence[Any]) -> None:
        """In the thread of the stream."""
        try:
            self._loop.call_soon_threadsafe(self._arrive, received)
        except RuntimeError:
            log.debug("%s: messages came after the loop had ended", self.subscription)

    def _arrive(self, received: Sequence[Any]) -> None:
        now = self._loop.time()
        for one in received:
            lease = _Lease(self._delivery(one), now + self._engine_lease_s, now + self._keep_s)
            self._release(lease.delivery.id)  # it had been lost, and comes again: one message, one place
            self._leases[lease.delivery.id] = lease
            if not self._leaving:
                self._arrived.append(lease)
        if self._lease_s < self._engine_lease_s:
            task = asyncio.create_task(self._extend([self._leases[one.message.message_id] for one in received]))
            self._shortening.add(task)
            task.add_done_callback(self._shortening.discard)
        self._news.set()

    def _delivery(self, received: Any) -> Delivery:
        message = received.message
        return Delivery(
            id=message.message_id,
            topic=self._topic,
            data=message.data,
            attributes=dict(message.attributes),
            key=message.ordering_key,
            attempt=received.delivery_attempt or 1,  # counted only beside a dead-letter policy
            published_ms=message.publish_time.ToMilliseconds(),
            handle=received.ack_id,
        )

    # Settling

    async def ack(self, delivery: Delivery) -> None:
        lease = self._leases.get(delivery.id)
        try:
            await self._settlements.ack(lease.delivery.handle if lease else delivery.handle)
        finally:
            self._release(delivery.id)

    async def nack(self, delivery: Delivery, delay_s: float, reason: str) -> None:
        """At once: Pub/Sub knows no delay for a single message."""
        lease = self._leases.get(delivery.id)
        self._release(delivery.id)  # before it comes again
        await self._settlements.nack(lease.delivery.handle if lease else delivery.handle)

    async def postpone(self, delivery: Delivery, delay_s: float, reason: str) -> None:
        """Called at the end only. Until then `LocalRetries` keeps the message, and this source its lease."""
        await self.nack(delivery, delay_s, reason)

    def free_place(self, delivery: Delivery) -> None:
        lease = self._leases.get(delivery.id)
        if lease is not None and lease.has_place:
            lease.has_place = False
            self._stream.free_place()

    def take_place(self, delivery: Delivery) -> None:
        lease = self._leases.get(delivery.id)
        if lease is not None and not lease.has_place:
            lease.has_place = True
            self._stream.take_place()

    def _release(self, message_id: str) -> None:
        lease = self._leases.pop(message_id, None)
        if lease is not None and lease.has_place:
            self._stream.release(1)

    # Leases

    async def extend(self, deliveries: Sequence[Delivery], deadline_s: float) -> Sequence[Delivery]:
        """Whether another has it by now, Pub/Sub does not say."""
        leases = [lease for delivery in deliveries if (lease := self._leases.get(delivery.id)) is not None]
        for lease in leases:
            lease.kept_until = max(lease.kept_until, self._loop.time() + deadline_s)
        # More at a time than Pub/Sub gives, it gets by and by.
        await self._extend_by(leases, max(1, min(LEASE_S_MAX, math.ceil(deadline_s))))
        return []

    async def _renew(self) -> None:
        """Every third of a lease those that have less than two thirds left; most of them were extended meanwhile."""
        third_s = self._lease_s / 3
        while True:
            await asyncio.sleep(third_s)
            now = self._loop.time()
            for message_id, lease in list(self._leases.items()):
                if lease.ends_at < now and lease.kept_until < now:
                    log.debug("%s: the lease of %s is over", self.subscription, message_id)
                    self._release(message_id)
            running_out = [
                lease
                for lease in self._leases.values()
                if lease.ends_at - now < 2 * third_s and lease.kept_until > lease.ends_at
            ]
            await self._extend(running_out)

    async def _extend(self, leases: list[_Lease]) -> None:
        try:
            await self._extend_by(leases, self._lease_s)
        except BusError as error:
            log.debug("%s: %d leases are not extended: %s", self.subscription, len(leases), error)

    async def _extend_by(self, leases: list[_Lease], lease_s: int) -> None:
        if leases:
            await self._settlements.extend([lease.delivery.handle for lease in leases], lease_s)
            for lease in leases:
                lease.ends_at = self._loop.time() + lease_s

    async def lag(self) -> int | None:
        """What this subscriber has and has not finished: all that can be said, for how much more there is, Pub/Sub
        tells only its monitoring."""
        return len(self._leases)

    # Its end

    async def stop(self) -> None:
        """What arrives after this was on its way, and is given back at once: others need not wait for it."""
        before = set(self._leases)
        self._leaving = True
        await asyncio.to_thread(self._stream.stop)
        self._stopped = True
        self._news.set()
        await self._give_back([lease for each, lease in self._leases.items() if each not in before])

    async def close(self) -> None:
        """What nobody has settled is given back; and nothing that was said is left unsaid."""
        await self.stop()
        self._renewal.cancel()
        await asyncio.gather(self._renewal, *self._shortening, return_exceptions=True)
        await self._give_back(list(self._leases.values()))
        await self._settlements.close(LAST_WORDS_S)

    async def _give_back(self, leases: list[_Lease]) -> None:
        tasks = [asyncio.ensure_future(self.nack(lease.delivery, 0, "")) for lease in leases]
        if tasks:
            await asyncio.wait(tasks, timeout=LAST_WORDS_S)
        for task in tasks:
            task.cancel()  # what it said is said nevertheless
            with contextlib.suppress(BusError, asyncio.CancelledError):
                await task
