"""The messages of a topic for a group, on lease from a server."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import weakref
from collections.abc import Sequence

from slipstream.api import ExtendRequest, FetchRequest, NackItem, Place
from slipstream.bus.drivers.driver import Delivery
from slipstream.bus.drivers.http.errors import as_bus_errors, bus_error
from slipstream.bus.drivers.http.poster import MakeTopic
from slipstream.bus.errors import BusUnavailable, InvalidArgument
from slipstream.client.async_client import AsyncClient
from slipstream.client.consume import PLACES
from slipstream.client.errors import NotFound, SlipstreamError
from slipstream.client.message import AsyncMessage
from slipstream.client.retry import ONCE, Retries
from slipstream.client.settlements import Settlements

log = logging.getLogger(__name__)

WAIT_MS = 1_000
"""How long a request waits for messages, and so how long a subscriber that has nothing to do takes to close."""

ANSWER_MS = 500
"""How much longer than that a server may take with its answer before it is taken to hang."""

NOTHING_PAUSE_MS = 100
"""A server of ours waits with an empty answer; who does not is not to be asked without a pause."""


class Held:
    """A message that was handed out to us, for as long as somebody here has it."""

    __slots__ = ("__weakref__", "data", "place", "published_ms", "replaced")

    def __init__(self, place: Place, published_ms: int, data: bytes) -> None:
        self.place = place
        self.published_ms = published_ms
        self.data = data
        self.replaced = False
        """Another message has its place now: whatever is said about this one would be said about that one."""


class HttpSource:
    def __init__(
        self,
        client: AsyncClient,
        topic: str,
        group: str,
        *,
        owner: str,
        deadline_s: float,
        make_topic: MakeTopic | None,
    ) -> None:
        self._client = client
        self._topic = topic
        self._group = group
        self._owner = owner
        self._lease_ms = round(deadline_s * 1000)
        self._make_topic = make_topic
        self._settlements = Settlements(client, topic, group, owner)
        self._stopping = asyncio.Event()
        self._answered = asyncio.Event()
        """No request for messages is under way."""
        self._answered.set()
        self._failures = 0
        self._trouble = ""
        self._held: weakref.WeakValueDictionary[Place, Held] = weakref.WeakValueDictionary()

    # Taking messages

    @property
    def trouble(self) -> str:
        return self._trouble if self._failures else ""

    async def pull(self, limit: int) -> Sequence[Delivery]:
        if self._stopping.is_set():
            return []
        began = time.monotonic()
        request = FetchRequest(
            topic=self._topic,
            group=self._group,
            owner=self._owner,
            max_messages=limit,
            wait_ms=WAIT_MS,
            lease_ms=self._lease_ms,
        )
        self._answered.clear()
        try:
            fetched = await self._client._fetch(request, ONCE)
        except SlipstreamError as error:
            self._answered.set()
            await self._wait_out(error)
            return []
        finally:
            self._answered.set()
        if self._failures:
            log.info("%s (group %s): going on", self._topic, self._group)
            self._failures = 0
        if not fetched:
            left_ms = WAIT_MS - (time.monotonic() - began) * 1000
            await self._pause(min(NOTHING_PAUSE_MS, max(0, left_ms)))
        return [self._delivery(message) for message in fetched]

    async def _wait_out(self, error: SlipstreamError) -> None:
        """Trouble is told once, for it may last for hours."""
        trouble = bus_error(error)
        if isinstance(trouble, InvalidArgument):
            raise trouble from error  # it would be refused for ever, and nobody would know
        self._failures += 1
        if isinstance(error, NotFound) and self._make_topic is not None:
            log.warning("%s is gone, with all that was in it; making it again", self._topic)
            try:
                await self._make_topic(self._topic, ONCE)
            except SlipstreamError as refused:
                error, trouble = refused, bus_error(refused)
            else:
                if self._failures == 1:
                    return
        self._trouble = f"no messages of {self._topic}: {trouble}"
        if self._failures == 1:
            log.warning("%s (group %s): no messages for now: %s; trying on", self._topic, self._group, trouble)
        await self._pause(self._client.retries.endless_pause_ms(self._failures, error))

    async def _pause(self, pause_ms: float) -> None:
        try:
            async with asyncio.timeout(pause_ms / 1000):
                await self._stopping.wait()
        except TimeoutError:
            pass

    def _delivery(self, message: AsyncMessage) -> Delivery:
        name = f"{message.partition}/{message.offset}"
        place = Place(message.partition, message.offset)
        held = Held(place, message.timestamp_ms, message.value)
        before = self._held.get(place)
        if before is not None and (before.published_ms, before.data) != (held.published_ms, held.data):
            # The topic was deleted and made again while a handler was at the message that had this place.
            before.replaced = True
            name = f"{name}@{held.published_ms}"
        self._held[place] = held
        return Delivery(
            id=name,
            topic=self._topic,
            data=message.value,
            attributes=message.attributes,
            key=message.key.decode(errors="replace"),
            attempt=message.attempts,
            published_ms=message.timestamp_ms,
            handle=held,
            partition=place.partition,
            offset=place.offset,
        )

    # Settling

    async def ack(self, delivery: Delivery) -> None:
        held: Held = delivery.handle
        if not held.replaced:
            await self._settlements.ack(held.place)

    async def nack(self, delivery: Delivery, delay_s: float, reason: str) -> None:
        """Always with a delay, so that what the server's own retry policy says does not matter."""
        await self._nack(delivery, delay_s, reason, counted=True)

    async def postpone(self, delivery: Delivery, delay_s: float, reason: str) -> None:
        await self._nack(delivery, delay_s, reason, counted=False)

    async def _nack(self, delivery: Delivery, delay_s: float, reason: str, *, counted: bool) -> None:
        held: Held = delivery.handle
        if not held.replaced:
            if self._stopping.is_set():
                await self._await_answer()
            place = held.place
            item = NackItem(
                partition=place.partition,
                offset=place.offset,
                reason=reason,
                delay_ms=round(delay_s * 1000),
                counted=counted,
            )
            await self._settlements.nack(item)

    async def _await_answer(self) -> None:
        """What is given back at the end would else come to our own last request for messages, where it is waited for
        by nobody."""
        with contextlib.suppress(TimeoutError):  # the server hangs
            async with asyncio.timeout((WAIT_MS + ANSWER_MS) / 1000):
                await self._answered.wait()

    async def extend(self, deliveries: Sequence[Delivery], deadline_s: float) -> Sequence[Delivery]:
        lost = [delivery for delivery in deliveries if delivery.handle.replaced]
        ours = [delivery for delivery in deliveries if not delivery.handle.replaced]
        third_s = deadline_s / 3
        try:
            # No longer than until the next is due: a request may wait for its answer for as long as the lease lasts.
            async with asyncio.timeout(third_s):
                for start in range(0, len(ours), PLACES):
                    lost += await self._extend(ours[start : start + PLACES], deadline_s, third_s)
        except TimeoutError as error:
            raise BusUnavailable(f"no answer from {self._client._transport.shown} in time") from error
        return lost

    async def _extend(self, deliveries: Sequence[Delivery], deadline_s: float, third_s: float) -> list[Delivery]:
        by_place: dict[Place, Delivery] = {delivery.handle.place: delivery for delivery in deliveries}
        request = ExtendRequest(
            topic=self._topic,
            group=self._group,
            owner=self._owner,
            messages=list(by_place),
            lease_ms=round(deadline_s * 1000),
        )
        third_ms = round(third_s * 1000)
        retries = Retries(for_ms=third_ms, backoff_ms=min(50, third_ms), backoff_ms_max=third_ms)
        with as_bus_errors():
            response = await self._client._extend(request, retries)
        return [
            by_place[Place(failure.partition, failure.offset)]
            for failure in response.failed
            if failure.error != "UNAVAILABLE"  # one that cannot be read just now is still ours
        ]

    async def lag(self) -> int | None:
        with as_bus_errors():
            try:
                return (await self._client.group(self._topic, self._group)).lag
            except NotFound:
                return None  # nobody has asked for a message yet

    # Its end

    async def stop(self) -> None:
        """The request that is under way is not cancelled, because what is in its answer would be on lease to nobody
        until the lease ends. It ends soon by itself."""
        self._stopping.set()

    async def close(self) -> None:
        await self._settlements.close()
