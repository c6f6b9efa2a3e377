"""Messages of a durable pull consumer, which all subscribers of a group share."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence

import msgspec
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription as NatsSubscription
from nats.errors import Error as NatsError
from nats.js import JetStreamContext

from slipstream.bus.drivers.driver import Delivery
from slipstream.bus.drivers.nats.connection import Connection
from slipstream.bus.drivers.nats.errors import FAILURES, translate
from slipstream.bus.drivers.nats.headers import from_headers
from slipstream.bus.drivers.nats.place import place_of
from slipstream.bus.errors import BusError, TopicMissing

log = logging.getLogger(__name__)

EXPIRES_S = 30.0
HEARTBEAT_S = 1.5
"""How often the server says that it has not forgotten a request. After two that are missing the request is made again,
so that one that was lost with its server is made again before another leader is elected, which takes 4 s at least."""
PAUSE_S = 0.25

ACK, NAK, PROGRESS = b"+ACK", b"-NAK", b"+WPI"


class Request(msgspec.Struct):
    """For messages of a pull consumer."""

    batch: int
    expires: int
    idle_heartbeat: int


class JetStreamSource:
    """Keeps one request under way for as many messages as there are free slots, and renews it as they come: no time is
    lost between a batch and the next, as it is with nats-py's `fetch`."""

    def __init__(
        self,
        connection: Connection,
        js: JetStreamContext,
        topic: str,
        stream: str,
        consumer: str,
        made_at: str,
        rejoin: Callable[[], Awaitable[str]],
    ) -> None:
        self._connection = connection
        self._nats = connection.nats
        self._js = js
        self._topic = topic
        self._stream = stream
        self._consumer = consumer
        self._rejoin = rejoin
        """Make stream and consumer again, where they are gone, and return when the stream was made; "" if that cannot
        be asked."""
        self._made_at = made_at
        self._suffix = ""
        """Of the ids of messages: a stream that is deleted and made again counts from 1, and has other messages."""
        self._next = f"{js._prefix}.CONSUMER.MSG.NEXT.{stream}.{consumer}"
        self._inbox = self._nats.new_inbox()
        self._generation = 0
        """Of requests; what is said about those before the last reconnect no longer matters."""
        self._asked = 0
        """Messages that were asked for and are still to come."""
        self._arrived: list[Delivery] = []
        self._something = asyncio.Event()
        self._heard_at = 0.0
        self._refused = False
        self._is_gone = False
        self._gone_for = ""
        self._stopped = False
        self._subscription: NatsSubscription | None = None
        self._loop = asyncio.get_running_loop()

    async def open(self) -> None:
        self._subscription = await self._nats.subscribe(
            f"{self._inbox}.*", cb=self._on_message, pending_msgs_limit=0, pending_bytes_limit=0
        )
        self._connection.on_reconnect.append(self._forget_requests)

    # From the server

    async def _on_message(self, msg: Msg) -> None:
        self._heard_at = self._loop.time()
        if not msg.reply:
            self._on_status(msg)
            return
        self._asked = max(0, self._asked - 1)
        self._arrived.append(self._delivery(msg))
        self._something.set()

    def _delivery(self, msg: Msg) -> Delivery:
        place = place_of(msg.reply)
        attributes, key = from_headers(msg.headers)
        return Delivery(
            id=f"{place.stream_sequence}{self._suffix}",
            topic=msg.subject,
            data=msg.data,
            attributes=attributes,
            key=key,
            attempt=place.delivered,
            published_ms=place.published_ms,
            handle=msg.reply,
            offset=place.stream_sequence,
        )

    def _on_status(self, msg: Msg) -> None:
        """The end of a request, or a heartbeat."""
        headers = msg.headers or {}
        status = headers.get("Status", "")
        if status == "100" or not msg.subject.endswith(f".{self._generation}"):
            return
        if status in {"408", "404"}:
            self._asked = max(0, self._asked - int(headers.get("Nats-Pending-Messages", self._asked)))
        else:
            # 409 with a reason, or 503 where nobody listens: consumer or stream deleted, a leader changed, a shutdown.
            description = headers.get("Description", "")
            log.info("NATS: a request to %s of %s ended: %s %s", self._consumer, self._stream, status, description)
            self._asked = 0
            self._refused = True
            self._is_gone = status == "503" or "Deleted" in description
        self._something.set()

    def _forget_requests(self) -> None:
        """The server that had them is gone, or has dropped them with the connection."""
        self._asked = 0
        self._something.set()

    # For the subscription

    @property
    def trouble(self) -> str:
        return self._connection.trouble or (self._gone_for if self._is_gone else "")

    async def pull(self, limit: int) -> Sequence[Delivery]:
        while not self._arrived and not self._stopped:
            if self._is_gone:
                await self._come_back()
                continue
            if self._refused:
                self._refused = False
                await self._pause()  # whatever the reason, it is not gone in a millisecond
                continue
            self._something.clear()  # before the request: what is said while it is made is not to be missed
            if self._asked < limit and self._nats.is_connected:
                await self._ask(limit - self._asked)
            await self._wait()
        arrived, self._arrived = self._arrived[:limit], self._arrived[limit:]
        return arrived

    async def _ask(self, count: int) -> None:
        if not self._asked:
            self._generation += 1
        request = Request(count, int(EXPIRES_S * 1e9), int(HEARTBEAT_S * 1e9))
        self._asked += count
        self._heard_at = self._loop.time()
        try:
            await self._nats.publish(
                self._next, msgspec.json.encode(request), reply=f"{self._inbox}.{self._generation}"
            )
        except NatsError as error:
            self._asked = 0
            log.warning("NATS: nothing can be asked of %s: %s", self._stream, error)

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(HEARTBEAT_S):
                await self._something.wait()
        except TimeoutError:
            if self._loop.time() - self._heard_at > 2 * HEARTBEAT_S:
                self._asked = 0  # the request is lost, without a word

    async def _come_back(self) -> None:
        """Find the stream and the consumer again, or make them again."""
        try:
            made_at = await self._rejoin()
            if made_at and self._made_at and made_at != self._made_at:
                self._suffix = f"@{made_at}"
                self._arrived.clear()  # they are gone with the stream they were in
            self._made_at = made_at or self._made_at
            self._is_gone = False
        except BusError as error:
            self._gone_for = f"{self._topic} cannot be consumed: {error}"
            log.warning("%s cannot be consumed: %s; trying on", self._topic, error)
            await self._pause()

    async def _pause(self) -> None:
        self._something.clear()
        if not self._stopped:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PAUSE_S):
                    await self._something.wait()

    async def ack(self, delivery: Delivery) -> None:
        await self._say(delivery, ACK)

    async def nack(self, delivery: Delivery, delay_s: float, reason: str) -> None:
        delay_ns = round(delay_s * 1e9)
        await self._say(delivery, NAK + b' {"delay": %d}' % delay_ns if delay_ns > 0 else NAK)

    async def postpone(self, delivery: Delivery, delay_s: float, reason: str) -> None:
        """Called at the end only: the server counts the delivery. Until then `LocalRetries` keeps the message."""
        await self.nack(delivery, delay_s, reason)

    async def extend(self, deliveries: Sequence[Delivery], deadline_s: float) -> Sequence[Delivery]:
        """By the consumer's ack_wait, whatever the deadline: JetStream knows no other. Nor does it tell who has lost
        a message; an ack for one that another has now finishes it for both."""
        for delivery in deliveries:
            if not self._is_stale(delivery):
                await self._say(delivery, PROGRESS)
        return ()

    def _is_stale(self, delivery: Delivery) -> bool:
        """The server would take what is said about it for the message that has its number now."""
        return not delivery.id.endswith(self._suffix)

    async def _say(self, delivery: Delivery, word: bytes) -> None:
        if self._is_stale(delivery):
            raise TopicMissing(f"{delivery.id} of {self._topic} is gone, with the stream it was in")
        try:
            await self._nats.publish(delivery.handle, word)
        except NatsError as error:
            raise translate(error, f"settling {delivery.id} of {self._topic}") from error

    async def lag(self) -> int | None:
        try:
            info = await self._js.consumer_info(self._stream, self._consumer)
        except FAILURES as error:
            raise translate(error, f"the lag of {self._consumer}") from error
        return (info.num_pending or 0) + (info.num_ack_pending or 0)

    async def stop(self) -> None:
        """What the server has sent before it hears of it arrives here before the flush is answered."""
        try:
            if self._subscription is not None and not self._nats.is_closed:
                subscription, self._subscription = self._subscription, None
                self._connection.on_reconnect.remove(self._forget_requests)
                await subscription.drain()  # type: ignore[no-untyped-call]
        except FAILURES as error:
            log.info("NATS: leaving %s without a word: %s", self._topic, error or type(error).__name__)
        finally:
            self._stopped = True
            self._something.set()

    async def close(self) -> None:
        with contextlib.suppress(*FAILURES):
            if self._nats.is_connected:
                await self._nats.flush(timeout=2)
