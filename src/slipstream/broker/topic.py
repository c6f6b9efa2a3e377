"""A topic and its partitions: how much was written and how far it may be read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec
from fnv_hash_fast import fnv1a_32

from slipstream.broker.addressed import AddressedMessages
from slipstream.broker.envelope import RetryPolicy
from slipstream.broker.indexes import IndexSet
from slipstream.record import Record

if TYPE_CHECKING:
    from slipstream.broker.group import Group

DEAD_LETTER_PREFIX = "dlq."


class TopicConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for a topic. Sizes count key and value bytes; 0 means no limit."""

    max_in_flight: int = 256
    max_waiting_messages: int = 1_000_000
    max_waiting_bytes: int = 1 << 30
    retry: RetryPolicy = RetryPolicy(max_attempts=25, backoff_ms=100, max_backoff_ms=3_600_000)
    retention_ms: int = 7 * 24 * 3600 * 1000
    retention_bytes: int = 0
    hold_unfinished: bool = False
    """Retention keeps what a group has not finished (ruling 17)."""
    dead_letters: bool = True
    expiry_ms: int = 0
    """The topic is deleted if it was not used for this long and nothing in it is unfinished; 0: never."""


class TopicOverrides(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was set for one topic. The rest follows the broker's settings, also when those change later."""

    max_in_flight: int | None = None
    max_waiting_messages: int | None = None
    max_waiting_bytes: int | None = None
    retry: RetryPolicy | None = None
    retention_ms: int | None = None
    retention_bytes: int | None = None
    hold_unfinished: bool | None = None
    dead_letters: bool | None = None
    expiry_ms: int | None = None

    def over(self, defaults: TopicConfig) -> TopicConfig:
        set_here = {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not None}
        return msgspec.structs.replace(defaults, **set_here)


class PartitionLog(Protocol):
    """The records of one partition, numbered 0, 1, 2 … in the order they were written (their *index*).

    Offsets count per topic, so within a partition they have gaps; the index has none, which is what makes "the next
    one", "how many are left" and "read ten from here" cheap.
    """

    def append(self, record: Record) -> None: ...

    def extend(self, records: Sequence[Record]) -> None: ...

    def start_at(self, index: int, payload_bytes: int) -> None:
        """A snapshot says that `index` records of `payload_bytes` were written before anything is appended here."""
        ...

    def read(self, index: int) -> Record:
        """The record at `index`, which is at least `first_index` and below the number of records.

        Raises LogUnreadable where the storage is damaged.
        """
        ...

    def index_of(self, offset: int) -> int | None:
        """The index of the record with this offset, or None where no record has it (any more)."""
        ...

    def offset_before(self, index: int) -> int:
        """The offset of the record before `index`, which is still there; at the end of the log it costs no reading."""
        ...

    def index_from(self, offset: int) -> int:
        """The index of the first record still there that has this offset or a later one; the end if none has.

        Raises LogUnreadable where the storage is damaged, and so do the next two.
        """
        ...

    def index_at(self, timestamp_ms: int) -> int:
        """The index of the first record still there that was stored at this time or later; the end if none was.

        Where the clock was set back over a restart, the first of several such places.
        """
        ...

    def bytes_before(self, index: int) -> int:
        """Key and value bytes ever written before the record at `index`, which is still there, or the end."""
        ...


class Partition:
    """One ordered log of a topic."""

    __slots__ = (
        "addressed",
        "bytes_total",
        "committed",
        "count",
        "first_bytes",
        "first_index",
        "first_offset",
        "floor_bytes",
        "floor_count",
        "log",
        "number",
        "redriven",
        "topic",
    )

    def __init__(self, topic: Topic, number: int, log: PartitionLog) -> None:
        self.topic = topic
        self.number = number
        self.log = log
        self.count = 0
        """Records ever written, durable or not: the index of the next one."""
        self.bytes_total = 0
        """Key and value bytes ever written."""
        self.committed = 0
        """Records that are safe in the journal; nothing at or past this index is shown to anyone."""
        self.first_index = 0
        """The oldest record retention has left."""
        self.first_bytes = 0
        """Bytes ever written before `first_index`."""
        self.first_offset = 0
        """The offset behind the last one that retention has removed."""
        self.floor_count = 0
        """At least this many records are finished by every group that counts; and their bytes."""
        self.floor_bytes = 0
        self.redriven: IndexSet | None = None
        """Of dead letters: those that were sent back."""
        self.addressed: AddressedMessages | None = None
        """Messages for one group only; None while the partition has had none."""

    def append(self, record: Record, size: int) -> int:
        index = self.count
        self.log.append(record)
        self.count = index + 1
        self.bytes_total += size
        return index

    def address(self, index: int, group: str) -> None:
        """Let only this group have the message that was appended last."""
        if self.addressed is None:
            self.addressed = AddressedMessages()
        self.addressed.add(index, group)

    def for_others(self, group: str, start: int, end: int) -> int:
        """Count the messages from index `start` up to `end` that are addressed to other groups than this one."""
        return self.addressed.for_others(start, end, group) if self.addressed is not None else 0

    def first_for(self, group: str, index: int) -> int:
        """Return the first index at or behind this one whose message the group gets."""
        return self.addressed.first_for(index, group) if self.addressed is not None else index

    def extend(self, records: Sequence[Record], size: int) -> int:
        """Returns how many there are then."""
        self.log.extend(records)
        self.count += len(records)
        self.bytes_total += size
        return self.count


class Topic:
    """A named stream with partitions, which may become more and never fewer, and any number of groups."""

    __slots__ = (
        "config",
        "created_ms",
        "groups",
        "id",
        "is_dead_letter",
        "name",
        "next_offset",
        "overrides",
        "partitions",
        "used_ms",
    )

    def __init__(
        self, topic_id: int, name: str, overrides: TopicOverrides, defaults: TopicConfig, created_ms: int
    ) -> None:
        self.id = topic_id
        self.name = name
        self.overrides = overrides
        self.config = overrides.over(defaults)
        self.created_ms = created_ms
        self.next_offset = 0
        self.used_ms = 0
        """When the last message was stored; 0 where none was, or that is not known."""
        self.partitions: list[Partition] = []
        self.groups: dict[str, Group] = {}
        self.is_dead_letter = name.startswith(DEAD_LETTER_PREFIX)

    @property
    def incarnation(self) -> str:
        """Tells this topic from another of its name, before it or after it, here or in another directory."""
        return f"{self.id}-{self.created_ms:x}"

    def partition_for(self, key: bytes) -> Partition:
        partitions = self.partitions
        # `partition_of`, written out: it is asked of every message.
        return partitions[0 if not key else fnv1a_32(key) % len(partitions)]


def partition_of(key: bytes, count: int) -> int:
    """Ruling 1: FNV-1a of the key, modulo the count; without a key the first."""
    return 0 if not key or count == 1 else fnv1a_32(key) % count
