"""The dead letters of a bus: listed, looked at, sent back, and discarded, on every engine that keeps a log.

A dead letter that was sent back or discarded is removed from its topic where the engine can remove one message
(JetStream). Elsewhere the topic `<dead-letter topic>.handled` records it, and it is not listed any more.
"""

from __future__ import annotations

import contextlib
import datetime as dt
from collections import defaultdict
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import msgspec

from slipstream.bus.dead_letter import ATTEMPTS, GROUP, ID, REASON, TIME, TOPIC
from slipstream.bus.drivers.driver import Driver, Stored
from slipstream.bus.errors import DeadLetterMissing, InvalidArgument, TopicMissing
from slipstream.bus.names import DEAD_LETTER_SUFFIX

if TYPE_CHECKING:
    from slipstream.bus.bus import Bus

HANDLED_SUFFIX = ".handled"
"""The suffix of the topic that records which dead letters of a topic were redriven or discarded."""
HANDLED_LONGER_MS = 24 * 3600 * 1000
"""How much longer a record is kept than the retention of its dead letter: an engine removes messages in segments, so a
dead letter may stay for longer than the retention says."""
ADDED = frozenset({REASON, TOPIC, GROUP, ATTEMPTS, TIME, ID})
"""The attributes that make a message a dead letter."""

Action: TypeAlias = Literal["redriven", "discarded"]
Handlings: TypeAlias = dict[tuple[int, int], set[int]]
"""(partition, offset) → when the dead letters died that were redriven or discarded there."""


class Handled(msgspec.Struct, frozen=True):
    """A record that a dead letter was redriven or discarded."""

    partition: int
    offset: int
    action: Action
    died_ms: int = 0
    """When the letter died: after its topic was deleted and made again, the same place has another dead letter. 0 in
    records of earlier versions; they apply to whatever is at the place."""


class Place(NamedTuple):
    """The place of a dead letter in its topic."""

    topic: str
    partition: int
    offset: int


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A message that was given up, with its place and the reason."""

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

    async def list(
        self, topic: str = "", selection: Selection = ALL, *, after: Place | None = None
    ) -> AsyncGenerator[DeadLetter, None]:
        """Yield the dead letters of a topic, or of all topics, the oldest of each partition first. Those that were sent
        back or discarded are left out. `topic` is that of the messages, or the dead-letter topic itself; one that
        `dead_letter_topic` names is listed only if `topic` names it. With `after`, yield those behind this place."""
        for name in [await self._kept_in(topic)] if topic else await self.topics():
            info = await self.bus.topic(name)
            if info is None:
                continue
            handled = await self._handled(name)
            for partition in range(info.partitions):
                if after is not None and (name, partition) < (after.topic, after.partition):
                    continue
                is_there = after is not None and (name, partition) == (after.topic, after.partition)
                start = after.offset + 1 if after is not None and is_there else 0
                async with contextlib.aclosing(self._stored(name, partition, start)) as messages:
                    async for stored in messages:
                        letter = _letter(name, stored)
                        if not _is_handled(letter, handled) and selection.has(letter):
                            yield letter

    async def _stored(self, topic: str, partition: int, start: int) -> AsyncGenerator[Stored, None]:
        """Yield the messages from `start` on, or from the oldest if retention has removed that one."""
        found = 0
        try:
            async with contextlib.aclosing(self.bus.read(topic, partition, start)) as messages:
                async for stored in messages:
                    found += 1
                    yield stored
        except InvalidArgument:
            if found or not start:
                raise
            async with contextlib.aclosing(self.bus.read(topic, partition)) as messages:
                async for stored in messages:
                    yield stored

    async def get(self, topic: str, partition: int, offset: int) -> DeadLetter:
        """Return one dead letter; raise DeadLetterMissing if there is none at this place."""
        name = await self._kept_in(topic)
        missing = DeadLetterMissing(
            f"there is no dead letter at {name}/{partition}/{offset}: it was sent back or discarded, or has expired"
        )
        try:
            async with contextlib.aclosing(self.bus.read(name, partition, offset, offset + 1)) as messages:
                found = [_letter(name, stored) async for stored in messages]
        except (TopicMissing, InvalidArgument) as error:
            raise missing from error
        if not found or _is_handled(found[0], await self._handled(name)):
            raise missing
        return found[0]

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
        done = msgspec.json.encode(Handled(letter.partition, letter.offset, action, letter.died_ms))
        place = f"{letter.partition}/{letter.offset}"
        await self._keep_handled(letter.topic)
        topic = letter.topic + HANDLED_SUFFIX
        await self.bus.publish(topic, done, message_id=f"{letter.place}:{letter.died_ms}", key=place)

    async def _keep_handled(self, topic: str) -> None:
        """Make the topic of the records, or adjust it, so that no record expires before its dead letter."""
        info, name = await self.bus.topic(topic), topic + HANDLED_SUFFIX
        retention_ms = info.retention_ms if info is not None else None
        wanted_ms = retention_ms + HANDLED_LONGER_MS if retention_ms else retention_ms
        handled, engine_name = await self.bus.topic(name), self.bus.settings.prefix + name
        if handled is None:
            await self._driver.ensure_topic(engine_name, retention_ms=wanted_ms, retention_bytes=0)
        elif wanted_ms is not None and handled.retention_ms != wanted_ms:
            await self._driver.adjust_topic(engine_name, None, wanted_ms, 0)

    async def _handled(self, topic: str) -> Handlings:
        name = topic + HANDLED_SUFFIX
        info = await self.bus.topic(name)
        found: Handlings = defaultdict(set)
        for partition in range(info.partitions if info is not None else 0):
            async with contextlib.aclosing(self.bus.read(name, partition)) as messages:
                async for stored in messages:
                    done = msgspec.json.decode(stored.data, type=Handled)
                    found[done.partition, done.offset].add(done.died_ms)
        return found

    async def _kept_in(self, topic: str) -> str:
        """Return the topic itself if it keeps dead letters: its name says so, or the oldest message of a partition is
        one, as in a topic that `dead_letter_topic` names. Else return `<topic>.DLQ`."""
        if topic.endswith(DEAD_LETTER_SUFFIX):
            return topic
        info = await self.bus.topic(topic)
        for partition in range(info.partitions if info is not None else 0):
            async with contextlib.aclosing(self.bus.read(topic, partition)) as messages:
                async for stored in messages:
                    if REASON in stored.attributes:
                        return topic
                    break
        return topic + DEAD_LETTER_SUFFIX


def _is_handled(letter: DeadLetter, handled: Handlings) -> bool:
    return not handled.get((letter.partition, letter.offset), set()).isdisjoint({0, letter.died_ms})


def _letter(topic: str, stored: Stored) -> DeadLetter:
    """Return a message as a dead letter, even if something other than the bus has published it there."""
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
