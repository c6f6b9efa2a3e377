"""The dead letters of a bus: listed, looked at, sent back, and discarded, on every engine that keeps a log.

A dead letter that was sent back or discarded is removed from its topic where the engine can remove one message
(JetStream). Elsewhere the topic `<dead-letter topic>.handled` says what was done, and it is not listed any more.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from slipstream.bus.dead_letter import ATTEMPTS, GROUP, ID, REASON, TIME, TOPIC
from slipstream.bus.drivers.driver import Driver, Stored
from slipstream.bus.errors import DeadLetterMissing, InvalidArgument, TopicMissing
from slipstream.bus.names import DEAD_LETTER_SUFFIX

if TYPE_CHECKING:
    from slipstream.bus.bus import Bus

HANDLED_SUFFIX = ".handled"
"""The suffix of the topic that says what was done with the dead letters of a topic."""
ADDED = frozenset({REASON, TOPIC, GROUP, ATTEMPTS, TIME, ID})
"""The attributes that make a message a dead letter."""

Action: TypeAlias = Literal["redriven", "discarded"]


class Handled(msgspec.Struct, frozen=True):
    """What was done with one dead letter."""

    partition: int
    offset: int
    action: Action


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A message that was given up, where it lies, and why."""

    topic: str
    """The dead-letter topic."""
    partition: int
    offset: int
    origin: str
    """The topic that it died in."""
    group: str
    """The group that it died in; "" if something else than the bus has put it here."""
    reason: str
    attempts: int
    died_ms: int
    key: str
    data: bytes
    attributes: dict[str, str]
    """The attributes of the message, without those of the dead letter."""

    @property
    def place(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Which dead letters; all that is given must hold."""

    group: str = ""
    error: str = ""
    """A part of the reason, in any case."""
    since_ms: int | None = None
    until_ms: int | None = None

    def has(self, letter: DeadLetter) -> bool:
        return (
            (not self.group or letter.group == self.group)
            and self.error.lower() in letter.reason.lower()
            and (self.since_ms is None or letter.died_ms >= self.since_ms)
            and (self.until_ms is None or letter.died_ms < self.until_ms)
        )


ALL = Selection()


class DeadLetters:
    """Made by `bus.dead_letters`.

    Example:
        async for letter in bus.dead_letters.list("orders"):
            await bus.dead_letters.redrive(letter)
    """

    def __init__(self, bus: Bus, driver: Driver) -> None:
        self.bus = bus
        self._driver = driver

    async def topics(self) -> list[str]:
        """Return the dead-letter topics that exist."""
        prefix = self.bus.settings.prefix
        names = await self._driver.topics(prefix)
        return [name.removeprefix(prefix) for name in names if name.endswith(DEAD_LETTER_SUFFIX)]

    async def list(self, topic: str = "", selection: Selection = ALL) -> AsyncIterator[DeadLetter]:
        """Yield the dead letters of a topic, or of all topics, the oldest of each partition first. Those that were sent
        back or discarded are left out. `topic` is that of the messages, or the dead-letter topic itself."""
        for name in [kept_in(topic)] if topic else await self.topics():
            info = await self.bus.topic(name)
            if info is None:
                continue
            handled = await self._handled(name)
            for partition in range(info.partitions):
                async for stored in self.bus.read(name, partition):
                    letter = _letter(name, stored)
                    if (partition, stored.offset) not in handled and selection.has(letter):
                        yield letter

    async def get(self, topic: str, partition: int, offset: int) -> DeadLetter:
        """Return one dead letter; raise DeadLetterMissing if there is none at this place."""
        name = kept_in(topic)
        missing = DeadLetterMissing(
            f"there is no dead letter at {name}/{partition}/{offset}: it was sent back or discarded, or has expired"
        )
        try:
            if (partition, offset) in await self._handled(name):
                raise missing
            async for stored in self.bus.read(name, partition, offset, offset + 1):
                return _letter(name, stored)
        except (TopicMissing, InvalidArgument) as error:
            raise missing from error
        raise missing

    async def redrive(self, letter: DeadLetter, to: str = "") -> str:
        """Publish the message again to the topic it died in, or to another, and return its new id. Every group of the
        topic gets it. It is the message as it was, without the attributes of the dead letter.

        A process that dies half way leaves the dead letter where it is. Sent back once more, it has the same id, so the
        engine stores it once, for as long as it remembers ids.
        """
        message_id = f"redrive:{letter.place}:{letter.died_ms}:{to}"
        published = await self.bus.publish(
            to or letter.origin, letter.data, letter.attributes, letter.key or None, message_id=message_id
        )
        await self._remove(letter, "redriven")
        return published

    async def discard(self, letter: DeadLetter) -> None:
        """Give the message up for good."""
        await self._remove(letter, "discarded")

    async def _remove(self, letter: DeadLetter, action: Action) -> None:
        name = self.bus.settings.prefix + letter.topic
        if await self._driver.remove(name, letter.partition, letter.offset):
            return
        done = msgspec.json.encode(Handled(letter.partition, letter.offset, action))
        place = f"{letter.partition}/{letter.offset}"
        topic = letter.topic + HANDLED_SUFFIX
        await self.bus.ensure_topic(topic)
        await self.bus.publish(topic, done, message_id=f"{letter.place}:{letter.died_ms}", key=place)

    async def _handled(self, topic: str) -> set[tuple[int, int]]:
        name = topic + HANDLED_SUFFIX
        info = await self.bus.topic(name)
        found: set[tuple[int, int]] = set()
        for partition in range(info.partitions if info is not None else 0):
            async for stored in self.bus.read(name, partition):
                done = msgspec.json.decode(stored.data, type=Handled)
                found.add((done.partition, done.offset))
        return found


def kept_in(topic: str) -> str:
    """Return the topic that keeps the dead letters of a topic, or the topic itself if it is such a one."""
    return topic if topic.endswith(DEAD_LETTER_SUFFIX) else topic + DEAD_LETTER_SUFFIX


def _letter(topic: str, stored: Stored) -> DeadLetter:
    """Also of a message that something else than the bus has put there."""
    attributes = stored.attributes
    return DeadLetter(
        topic=topic,
        partition=stored.partition,
        offset=stored.offset,
        origin=attributes.get(TOPIC) or topic.removesuffix(DEAD_LETTER_SUFFIX),
        group=attributes.get(GROUP, ""),
        reason=attributes.get(REASON, ""),
        attempts=_number(attributes.get(ATTEMPTS, "")),
        died_ms=_time_ms(attributes.get(TIME, "")) or stored.published_ms,
        key=stored.key,
        data=stored.data,
        attributes={name: value for name, value in attributes.items() if name not in ADDED},
    )


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() else 0


def _time_ms(text: str) -> int:
    try:
        return round(dt.datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        return 0
