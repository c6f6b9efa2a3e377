"""A stream read on as it grows, through consumers that ack nothing and are deleted afterwards.

Such a consumer counts a message as seen when it is sent. What is lost on the way would never come, so each has a number
of its own, and where one is missing, or the connection was away, there is another consumer, which begins behind the
last message that has come.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import AsyncGenerator

import msgspec
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription as NatsSubscription
from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from slipstream.bus.drivers.driver import FOLLOW_MESSAGES, Stored
from slipstream.bus.drivers.nats.connection import Connection
from slipstream.bus.drivers.nats.errors import FAILURES, translate
from slipstream.bus.drivers.nats.headers import from_headers
from slipstream.bus.drivers.nats.place import Place, place_of
from slipstream.bus.drivers.nats.source import EXPIRES_S, HEARTBEAT_S, PAUSE_S, Request
from slipstream.bus.drivers.nats.streams import Streams
from slipstream.bus.errors import BusClosed, BusError, TopicMissing

log = logging.getLogger(__name__)

INACTIVE_S = 30.0
"""The server removes a consumer that nobody has asked for so long: one that was left behind, or whose follower is busy,
and has another made."""


class Follower:
    """One request or more is always under way while somebody waits, for a batch and a half at most."""

    def __init__(self, connection: Connection, js: JetStreamContext, streams: Streams, topic: str, start: int) -> None:
        self._connection = connection
        self._nats = connection.nats
        self._js = js
        self._streams = streams
        self._topic = topic
        self._start = start
        self._next = start
        """The sequence of the stream to go on with."""
        self._stream = ""
        self._made_at = ""
        self._consumer = ""
        """Its name; none while there is none that can be trusted."""
        self._count = 0
        """What it was given."""
        self._inbox = self._nats.new_inbox()
        self._generation = 0
        """Of consumers; what is said about those before no longer matters."""
        self._asked = 0
        self._arrived: list[Stored] = []
        self._something = asyncio.Event()
        self._heard_at = 0.0
        self._begun_at = 0.0
        self._loop = asyncio.get_running_loop()

    async def batches(self) -> AsyncGenerator[list[Stored], None]:
        """The first consumer must be had at once, or it is an error; later ones are waited for."""
        subscription = await self._listen()
        self._connection.on_reconnect.append(self._lose)
        try:
            await self._begin()
            while True:
                await self._more()
                arrived, self._arrived = self._arrived, []
                for first in range(0, len(arrived), FOLLOW_MESSAGES):
                    yield arrived[first : first + FOLLOW_MESSAGES]
        finally:
            self._connection.on_reconnect.remove(self._lose)
            await self._leave(subscription)

    async def _listen(self) -> NatsSubscription:
        try:
            return await self._nats.subscribe(
                f"{self._inbox}.*", cb=self._on_message, pending_msgs_limit=0, pending_bytes_limit=0
            )
        except FAILURES as error:
            raise translate(error, f"following {self._topic}") from error

    async def _leave(self, subscription: NatsSubscription) -> None:
        """The server forgets the consumer by itself, if it cannot be told."""
        if self._nats.is_closed:
            return
        with contextlib.suppress(*FAILURES):
            await subscription.unsubscribe()
            if self._consumer and self._nats.is_connected:
                await self._js.delete_consumer(self._stream, self._consumer)

    # From the server

    async def _on_message(self, msg: Msg) -> None:
        self._heard_at = self._loop.time()
        if not msg.reply:
            self._on_status(msg)
            return
        place = place_of(msg.reply)
        if place.consumer != self._consumer:
            return  # from the one before: it comes again
        self._count += 1
        if place.consumer_sequence != self._count:
            self._lose()
            return
        self._asked = max(0, self._asked - 1)
        self._next = place.stream_sequence + 1
        if place.stream_sequence >= self._start:  # a consumer that is to begin in the future begins now
            self._arrived.append(stored(msg, place))
        self._something.set()

    def _on_status(self, msg: Msg) -> None:
        headers = msg.headers or {}
        status = headers.get("Status", "")
        if status == "100" or not msg.subject.endswith(f".{self._generation}"):
            return
        if status in {"408", "404"}:
            self._asked = max(0, self._asked - int(headers.get("Nats-Pending-Messages", self._asked)))
            self._something.set()
        else:
            description = headers.get("Description", "")
            log.info("NATS: a request to %s of %s ended: %s %s", self._consumer, self._stream, status, description)
            self._lose()

    def _lose(self) -> None:
        """What it says from now on does not count; what has come, in order, does."""
        self._consumer = ""
        self._asked = 0
        self._something.set()

    # For the follower

    def wake(self) -> None:
        """To look whether the bus is closed."""
        self._something.set()

    async def _more(self) -> None:
        """Returns when something has arrived."""
        while True:
            if self._nats.is_closed:
                raise BusClosed("this bus is closed: open another")
            self._something.clear()  # before the request: what is said while it is made is not to be missed
            if self._consumer and self._asked <= FOLLOW_MESSAGES // 2 and self._nats.is_connected:
                await self._ask(FOLLOW_MESSAGES)
            if self._arrived:
                return
            if self._consumer:
                await self._wait()
            else:
                await self._begin_again()

    async def _ask(self, count: int) -> None:
        request = Request(count, int(EXPIRES_S * 1e9), int(HEARTBEAT_S * 1e9))
        subject = f"{self._js._prefix}.CONSUMER.MSG.NEXT.{self._stream}.{self._consumer}"
        self._asked += count
        self._heard_at = self._loop.time()
        try:
            await self._nats.publish(subject, msgspec.json.encode(request), reply=f"{self._inbox}.{self._generation}")
        except NatsError as error:
            log.warning("NATS: nothing can be asked of %s: %s", self._stream, error)
            self._lose()

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(HEARTBEAT_S):
                await self._something.wait()
        except TimeoutError:
            if self._nats.is_connected and self._loop.time() - self._heard_at > 2 * HEARTBEAT_S:
                self._lose()  # the request is lost, without a word

    async def _begin_again(self) -> None:
        if self._loop.time() - self._begun_at < PAUSE_S:
            await asyncio.sleep(PAUSE_S)  # whatever the last one was refused for, it is not gone in a millisecond
        try:
            await self._begin()
        except TopicMissing:
            raise
        except BusError as error:
            log.warning("%s cannot be followed for now: %s; trying on", self._topic, error)
            await asyncio.sleep(PAUSE_S)

    async def _begin(self) -> None:
        self._stream = await self._streams.find(self._topic)
        made_at = await self._streams.made_at(self._stream)
        if self._made_at and made_at and made_at != self._made_at:
            raise TopicMissing(f"{self._topic} was deleted, and made again, with other messages: follow it from 0")
        self._made_at = made_at
        try:
            info = await self._js.add_consumer(self._stream, reading(self._topic, self._next))
        except FAILURES as error:
            raise translate(error, f"following {self._topic}") from error
        self._begun_at = self._loop.time()
        self._consumer = info.name
        self._count = 0
        self._asked = 0
        self._generation += 1


def reading(topic: str, start: int) -> ConsumerConfig:
    """Return the configuration of a consumer that disappears when it is no longer asked, and takes no message from
    another. It has a name, so that a request that is sent again makes no second one."""
    return ConsumerConfig(
        name=secrets.token_hex(8),
        ack_policy=AckPolicy.NONE,
        deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
        opt_start_seq=max(1, start),
        filter_subject=topic,
        inactive_threshold=INACTIVE_S,
        mem_storage=True,
    )


def stored(msg: Msg, place: Place) -> Stored:
    attributes, key = from_headers(msg.headers)
    return Stored(
        topic=msg.subject,
        partition=0,
        offset=place.stream_sequence,
        data=msg.data,
        attributes=attributes,
        key=key,
        published_ms=place.published_ms,
    )
