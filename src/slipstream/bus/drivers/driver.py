"""What the bus asks of an engine. Everything else it does itself, the same on all of them.

Names that arrive here are the engine's: the prefix is on them, and they have been checked. Every method raises
`BusError`, and nothing of the engine's own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any, Literal, Protocol

import msgspec

from slipstream.bus.options import SubscribeOptions

FOLLOW_MESSAGES = 1_000
"""In a batch of `follow`, at most."""


class Outgoing(msgspec.Struct, frozen=True):
    """A message to be published."""

    topic: str
    data: bytes
    attributes: dict[str, str]
    key: str = ""
    message_id: str = ""
    """Two with the same are one, where the engine can tell. Empty: the driver may invent one, so as to be able to send
    the message again without storing it twice."""


NO_OFFSET = -1
"""Of a message where nobody tells its place."""


class Delivery:
    """A message as the engine hands it out, to be settled by the source it came from."""

    __slots__ = (
        "attempt",
        "attributes",
        "data",
        "handle",
        "id",
        "key",
        "offset",
        "partition",
        "published_ms",
        "topic",
    )

    def __init__(
        self,
        *,
        id: str,  # noqa: A002 - what it is
        topic: str,
        data: bytes,
        attributes: dict[str, str],
        key: str = "",
        attempt: int = 1,
        published_ms: int = 0,
        handle: Any = None,
        partition: int = 0,
        offset: int = NO_OFFSET,
    ) -> None:
        self.id = id
        """The same each time this message comes; different for every message of the topic."""
        self.topic = topic
        self.data = data
        self.attributes = attributes
        self.key = key
        self.attempt = attempt
        """1 the first time."""
        self.published_ms = published_ms
        self.handle = handle
        """The driver's own: whatever it needs to settle it."""
        self.partition = partition
        self.offset = offset
        """Its place in the log, as `read` and `follow` have it, where the engine tells."""


class Stored(msgspec.Struct, frozen=True):
    """A message in a log, as `read`, `follow` and `tap` see it. Nobody has it on lease."""

    topic: str
    partition: int
    offset: int
    data: bytes
    attributes: dict[str, str]
    key: str = ""
    published_ms: int = 0


class TopicInfo(msgspec.Struct, frozen=True):
    """What there is of a topic, and what holds for it."""

    name: str
    partitions: int
    retention_ms: int | None
    """0: for ever. None: the engine keeps nothing, or does not tell how long."""
    retention_bytes: int | None
    """0: no limit. None: the engine has none, or does not tell it."""


class Finding(msgspec.Struct, frozen=True):
    """One thing the doctor looked at."""

    verdict: Literal["ok", "warning", "problem"]
    what: str
    """What was looked at, in two or three words. A problem of the `connection` is that the engine cannot be reached."""
    text: str
    """What was found, and for a problem what to do."""


class Source(Protocol):
    """The messages of one topic for one group, on lease to one subscriber.

    Settling is never refused because of the state of the connection: a driver says it again until the engine has heard
    it, or lets the lease run out. It may raise `BusError` for what will never be heard.
    """

    @property
    def trouble(self) -> str:
        """Why the engine gives no messages, as long as it does not; "" where all is well, or where `pull` would say so
        by what it raises. Asked by who looks after the process."""
        ...

    async def pull(self, limit: int) -> Sequence[Delivery]:
        """Waits for messages and returns what there is. No more than `limit` are asked of the engine, those included
        that were asked for before and are still to come. May return none; trouble with the engine is reported by
        logging it, and waited for."""
        ...

    async def ack(self, delivery: Delivery) -> None: ...

    async def nack(self, delivery: Delivery, delay_s: float, reason: str) -> None:
        """Somebody in the group gets it again after the delay, as the next attempt."""
        ...

    async def postpone(self, delivery: Delivery, delay_s: float, reason: str) -> None:
        """Give back a message that was not attempted: some subscriber of the group gets it after the delay, with the
        attempt number that it has now. While it waits it takes none of the places of messages under way."""
        ...

    async def extend(self, deliveries: Sequence[Delivery], deadline_s: float) -> Sequence[Delivery]:
        """So much more time for each, from now. Returns those that are another's by now, where the engine tells."""
        ...

    async def lag(self) -> int | None:
        """How many messages the group has not finished; None where nobody knows."""
        ...

    async def stop(self) -> None:
        """Asks for nothing more. From now on `pull` returns what has arrived, and then nothing, at once."""
        ...

    async def close(self) -> None:
        """After `stop`, when all is settled."""
        ...


class Places(Protocol):
    """The flow control of an engine that pushes messages, and stops while too many are not settled."""

    def free_place(self, delivery: Delivery) -> None:
        """Count the delivery no longer, though its lease is kept."""
        ...

    def take_place(self, delivery: Delivery) -> None:
        """Count it again."""
        ...


class Driver(Protocol):
    """One engine, or the way to it."""

    @property
    def name(self) -> str:
        """The label in metrics, and the value of MESSAGE_BUS_DRIVER."""
        ...

    @property
    def native(self) -> Any:
        """The engine's own client, for what the bus does not offer."""
        ...

    async def open(self) -> None: ...

    async def close(self) -> None:
        """After all sources are closed and all futures of `post` are done."""
        ...

    async def post(self, message: Outgoing) -> asyncio.Future[str]:
        """Sends it on its way, in order, and returns a future of its id: done when the engine has it safely, failed
        with `BusError` when that was not to be had in the time the settings allow."""
        ...

    async def post_all(self, messages: Sequence[Outgoing]) -> asyncio.Future[Any]:
        """Likewise, for many of one topic: done when the engine has all of them safely."""
        ...

    async def subscribe(self, topic: str, group: str, options: SubscribeOptions) -> Source:
        """Joins the group, which is made if it is new."""
        ...

    async def ensure_group(self, topic: str, group: str, options: SubscribeOptions) -> None:
        """Makes what `subscribe` would, whatever the settings say about that, and takes no message."""
        ...

    async def topic(self, topic: str) -> TopicInfo | None:
        """None where there is no such topic."""
        ...

    async def topics(self, prefix: str) -> list[str]:
        """Return the names of all topics that start with the prefix, sorted. Raise Unsupported if the engine keeps no
        topics."""
        ...

    async def remove(self, topic: str, partition: int, offset: int) -> bool:
        """Remove one message from the log; False where the engine cannot. One that is gone already is no error."""
        ...

    async def groups(self, topic: str) -> list[str] | None:
        """Return the names of the groups that consume a topic, sorted; None where the engine does not know them."""
        ...

    async def ensure_topic(
        self,
        topic: str,
        partitions: int | None = None,
        retention_ms: int | None = None,
        retention_bytes: int | None = None,
    ) -> None:
        """Makes it if it is missing; one that exists is left as it is. None: as the settings say."""
        ...

    async def adjust_topic(
        self, topic: str, partitions: int | None, retention_ms: int | None, retention_bytes: int | None
    ) -> TopicInfo:
        """Changes one that exists, and returns what holds then. None: as it is. What the engine cannot do stays as it
        was, and is no error. Raises TopicMissing."""
        ...

    def read(self, topic: str, partition: int, start: int, end: int | None) -> AsyncGenerator[Stored, None]:
        """From offset `start` up to, and without, `end`; None for what is there now."""
        ...

    def follow(self, topic: str, partition: int, start: int) -> AsyncGenerator[list[Stored], None]:
        """What is there from offset `start`, or from the oldest there is, and then whatever comes, without an end, in
        lists of 1 to `FOLLOW_MESSAGES`. Waits for an engine that goes away; raises TopicMissing when the topic does."""
        ...

    def tap(self, prefix: str, listening: asyncio.Event | None = None) -> AsyncGenerator[Stored, None]:
        """Whatever is published from now on to topics whose names start so, without taking it from anybody. The event
        is set when nothing that is published afterwards can be missed."""
        ...

    def examine(self, prefix: str) -> AsyncIterator[Finding]:
        """What there is to say about connection, credentials, and what exists; opens what it needs by itself."""
        ...


async def post_each(driver: Driver, messages: Sequence[Outgoing]) -> asyncio.Future[Any]:
    """`post_all` of an engine that takes them one by one, or puts them together by itself."""
    return asyncio.gather(*[await driver.post(message) for message in messages])
