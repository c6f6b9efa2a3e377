"""Changes of state, as they stand in the journal.

`Published`, number 2, and `PublishedBatch`, number 19, stand in `slipstream.record`, because the store reads them too.

The broker's state is the fold of these over an empty broker: a live command decides, emits a change and applies it; a
restart applies the same changes again. Numbers are part of the file format: never reuse one, only add fields at the
end, with a default.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from typing import TypeAlias

import msgspec

from slipstream.broker.envelope import RetryPolicy
from slipstream.broker.evidence import Attempt
from slipstream.broker.topic import TopicOverrides
from slipstream.record import Published, PublishedBatch


class TopicCreated(msgspec.Struct, array_like=True, tag=1, frozen=True):
    topic_id: int
    name: str
    partitions: int
    overrides: TopicOverrides
    created_ms: int


class GroupCreated(msgspec.Struct, array_like=True, tag=3, frozen=True):
    group_id: int
    topic_id: int
    name: str


class Delivered(msgspec.Struct, array_like=True, tag=4, frozen=True, gc=False):
    """One delivery attempt. Not waited for: it only keeps owner, attempts and lease across a restart."""

    group_id: int
    partition: int
    offset: int
    index: int
    size: int
    attempts: int
    owner: str
    lease_until_ms: int
    retry: RetryPolicy | None = None
    """The retry policy of the handler, if it named one."""
    at_ms: int = 0
    """When it was delivered."""


class Outcome(enum.IntEnum):
    """How a message was finished for a group."""

    ACKED = 0
    MAX_ATTEMPTS = 1
    DEADLINE_EXCEEDED = 2
    REJECTED = 3
    """Its consumer said that no further attempt would help."""
    NOT_ADDRESSED = 4
    """The message is for another group only; this one passed over it without a delivery."""
    REJECTED_BY_OPERATOR = 5
    DISCARDED = 6
    """An operator finished it, and it left no dead letter."""


class Finished(msgspec.Struct, array_like=True, tag=5, frozen=True, gc=False):
    group_id: int
    partition: int
    offset: int
    outcome: Outcome = Outcome.ACKED
    size: int = 0
    index: int = -1
    """Only where the message was never delivered, so that no lease knows them."""


class Failed(msgspec.Struct, array_like=True, tag=6, frozen=True, gc=False):
    """A message waits for its next attempt until `due_ms`. `released` tells a nack from a lease that ran out."""

    group_id: int
    partition: int
    offset: int
    last_error: str
    due_ms: int
    released: bool
    excused: bool = False
    """The attempt does not count towards the limit."""
    attempt: Attempt | None = None
    """The attempt that failed."""
    is_attempted: bool = True
    """False where the consumer gave the message back as it was: the next delivery has the same attempt number."""


class Extended(msgspec.Struct, array_like=True, tag=7, frozen=True, gc=False):
    group_id: int
    partition: int
    offset: int
    lease_until_ms: int


class Trimmed(msgspec.Struct, array_like=True, tag=8, frozen=True):
    """Retention removed every record of the partition below `first_index`."""

    topic_id: int
    partition: int
    first_index: int
    first_bytes: int
    first_offset: int = 0
    """The offset behind the last one removed."""


class OnceBegan(msgspec.Struct, array_like=True, tag=9, frozen=True):
    """A worker began a guarded effect (consumer idempotency, ruling 8)."""

    group_id: int
    tenant: str
    key: str
    owner: str
    lease_until_ms: int


class OnceSettled(msgspec.Struct, array_like=True, tag=10, frozen=True):
    group_id: int
    tenant: str
    key: str
    committed: bool
    error: str
    at_ms: int


class TopicChanged(msgspec.Struct, array_like=True, tag=11, frozen=True):
    topic_id: int
    overrides: TopicOverrides
    partitions: int
    """As many as before, or more."""


class TopicDeleted(msgspec.Struct, array_like=True, tag=12, frozen=True):
    topic_id: int


class GroupMoved(msgspec.Struct, array_like=True, tag=13, frozen=True):
    """A group was sent to another place in one partition; what it held there is let go."""

    group_id: int
    partition: int
    index: int
    """Of the next record it gets."""
    cursor: int
    """The offset before that one."""
    done_bytes: int
    """Bytes ever written to the partition before it."""


class GroupPaused(msgspec.Struct, array_like=True, tag=14, frozen=True):
    group_id: int
    paused: bool


class GroupForgotten(msgspec.Struct, array_like=True, tag=15, frozen=True):
    group_id: int


class Postponed(msgspec.Struct, array_like=True, tag=16, frozen=True, gc=False):
    """A group came to a message that is not due yet, and goes on behind it."""

    group_id: int
    partition: int
    offset: int
    index: int
    size: int
    due_ms: int


class BatchCommitted(msgspec.Struct, array_like=True, tag=17, frozen=True):
    """The messages before this one in the frame were a batch with an idempotency key."""

    topic_id: int
    key: str
    at_ms: int
    first_offset: int
    count: int
    places: list[tuple[int, int, int]] = []
    """(topic id, partition, offset) of each, unless they are `count` offsets in a row where their keys belong."""
    partitions: int = 0
    """How many the topic had."""


class Redriven(msgspec.Struct, array_like=True, tag=18, frozen=True, gc=False):
    """A dead letter was sent back; the message it became is in the same frame."""

    topic_id: int
    partition: int
    index: int
    offset: int = -1
    """So that a repair finds it where records before it are lost."""


class DeliveredRun(msgspec.Struct, array_like=True, tag=20, frozen=True):
    """Messages that one consumer got together, each for the first time: most are, and one change is cheaper."""

    group_id: int
    partition: int
    owner: str
    lease_until_ms: int
    messages: list[tuple[int, int, int]]
    """(offset, index, size)"""
    retry: RetryPolicy | None = None
    at_ms: int = 0
    """When they were delivered."""

    def delivered(self) -> Iterator[Delivered]:
        group_id, partition, owner, until_ms = self.group_id, self.partition, self.owner, self.lease_until_ms
        retry, at_ms = self.retry, self.at_ms
        for offset, index, size in self.messages:
            yield Delivered(group_id, partition, offset, index, size, 1, owner, until_ms, retry, at_ms)


class FinishedBatch(msgspec.Struct, array_like=True, tag=21, frozen=True):
    """Messages that were acked together."""

    group_id: int
    partition: int
    offsets: list[int]

    def finished(self) -> Iterator[Finished]:
        for offset in self.offsets:
            yield Finished(self.group_id, self.partition, offset)


class GroupRetryChanged(msgspec.Struct, array_like=True, tag=23, frozen=True):
    """The retry policy of a group was set, or with None removed."""

    group_id: int
    retry: RetryPolicy | None


class WriterCommitted(msgspec.Struct, array_like=True, tag=22, frozen=True):
    """The messages before this one in the frame are what the writer committed under this sequence."""

    writer: str
    sequence: int
    at_ms: int


Change: TypeAlias = (
    TopicCreated
    | Published
    | GroupCreated
    | Delivered
    | Finished
    | Failed
    | Extended
    | Trimmed
    | OnceBegan
    | OnceSettled
    | TopicChanged
    | TopicDeleted
    | GroupMoved
    | GroupPaused
    | GroupForgotten
    | Postponed
    | BatchCommitted
    | Redriven
    | PublishedBatch
    | DeliveredRun
    | FinishedBatch
    | WriterCommitted
    | GroupRetryChanged
)


def batched_in(changes: Iterable[Change]) -> int:
    """How many messages share a change with one before them."""
    batched = 0
    for change in changes:
        if isinstance(change, PublishedBatch | DeliveredRun):
            batched += len(change.messages) - 1
        elif isinstance(change, FinishedBatch):
            batched += len(change.offsets) - 1
    return batched


encode_change = msgspec.msgpack.Encoder().encode
decode_changes = msgspec.msgpack.Decoder(list[Change]).decode
"""Decodes one journal frame."""
