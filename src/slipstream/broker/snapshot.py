"""The state as plain data, one struct per noun: the format of a snapshot stands here and nowhere else.

New fields go at the end of a struct, with a default, so that an older snapshot still reads.
"""

from __future__ import annotations

import enum

import msgspec

from slipstream.broker.addressed import AddressedMessages
from slipstream.broker.changes import GroupCreated, TopicCreated
from slipstream.broker.envelope import RetryPolicy
from slipstream.broker.evidence import NO_EVIDENCE, Evidence
from slipstream.broker.group import Progress
from slipstream.broker.idempotency import Status
from slipstream.broker.indexes import IndexSet
from slipstream.broker.lease import Lease
from slipstream.broker.state import Deadline, State
from slipstream.broker.topic import PartitionLog, Topic, TopicOverrides
from slipstream.broker.writers import WriterImage
from slipstream.record import LogUnreadable


def take_snapshot(state: State) -> bytes:
    """Everything a restart must find again, up to the last change emitted."""
    return _encode(
        _Snapshot(
            topics=[_TopicImage.of(topic) for topic in state.topics.values()],
            produced=state.produced.pages(),
            once=state.once.pages(),
            deadlines=state.deadlines,
            dead_lettered=[(*key, count) for key, count in state.dead_lettered.items()],
            batches=state.batches.pages(),
            last_topic_id=state.last_topic_id,
            last_group_id=state.last_group_id,
            writers=state.writers.image(),
        )
    )


def restore_snapshot(state: State, encoded: bytes) -> None:
    """Takes over a snapshot, into an empty state."""
    snapshot = _decode(encoded)
    for image in snapshot.topics:
        image.restore(state)
    state.produced.restore(snapshot.produced)
    state.batches.restore(snapshot.batches)
    # A produce that was under way is in the journal before the snapshot is used, or the snapshot is not used.
    for operation in (*state.produced.operations.values(), *state.batches.operations.values()):
        operation.status = Status.COMMITTED
    state.once.restore(snapshot.once)
    state.deadlines = snapshot.deadlines
    for topic, reason, count in snapshot.dead_lettered:
        state.dead_lettered[topic, reason] = count
    # Those of the last ones may be higher, if they were deleted.
    state.last_topic_id = max(state.last_topic_id, snapshot.last_topic_id)
    state.last_group_id = max(state.last_group_id, snapshot.last_group_id)
    state.writers.restore(snapshot.writers)


class _LeaseState(enum.IntEnum):
    LEASED = 0
    WAITING = 1
    """It waits for its next attempt."""
    READY = 2
    """Written by earlier versions: its next attempt is due."""


class _LeaseImage(msgspec.Struct, array_like=True, gc=False):
    offset: int
    index: int
    size: int
    attempts: int
    owner: str
    until_ms: int
    state: _LeaseState
    last_error: str
    released: bool
    excused: int = 0
    retry: RetryPolicy | None = None
    delivered_ms: int = 0
    evidence: Evidence = NO_EVIDENCE
    is_attempted: bool = True

    @classmethod
    def of(cls, lease: Lease, state: _LeaseState) -> _LeaseImage:
        return cls(
            lease.offset,
            lease.index,
            lease.size,
            lease.attempts,
            lease.owner,
            lease.until_ms,
            state,
            lease.last_error,
            lease.released,
            lease.excused,
            lease.retry,
            lease.delivered_ms,
            lease.evidence,
            lease.is_attempted,
        )


class _ProgressImage(msgspec.Struct, array_like=True):
    position: int
    cursor: int
    done_bytes: int
    leases: list[_LeaseImage]
    finished_ahead: dict[int, tuple[int, int]]
    postponed: list[tuple[int, int, int, int]] = []
    """(offset, index, size, when it is due) of what was never delivered"""
    dead_offsets: list[tuple[int, int]] = []
    """Written by earlier versions: the offsets of what was dead-lettered, as ranges."""
    dead: list[tuple[int, int]] = []
    """The log indexes of what was dead-lettered, as ranges."""

    @classmethod
    def of(cls, progress: Progress) -> _ProgressImage:
        held = [_LeaseImage.of(lease, _LeaseState.LEASED) for lease in progress.leases.values()]
        delayed = []
        for lease in progress.postponed.values():
            if lease.attempts:
                held.append(_LeaseImage.of(lease, _LeaseState.WAITING))
            else:
                delayed.append((lease.offset, lease.index, lease.size, lease.until_ms))
        dead = progress.dead.ranges() if progress.dead is not None else []
        return cls(
            progress.position, progress.cursor, progress.done_bytes, held, progress.finished_ahead, delayed, [], dead
        )

    def restore(self, progress: Progress) -> None:
        for offset, index, size, due_ms in self.postponed:
            progress.postpone(Lease(offset, index, size, 0, "", due_ms), due_ms)
        for image in self.leases:
            lease = Lease(
                image.offset, image.index, image.size, image.attempts, image.owner, image.until_ms, image.retry
            )
            lease.last_error = image.last_error
            lease.released = image.released
            lease.excused = image.excused
            lease.delivered_ms = image.delivered_ms
            lease.evidence = image.evidence
            lease.is_attempted = image.is_attempted
            if image.state is _LeaseState.LEASED:
                progress.leases[lease.offset] = lease
            else:
                progress.postpone(lease, lease.until_ms)
        progress.position = self.position
        progress.cursor = self.cursor
        progress.done_bytes = self.done_bytes
        progress.finished_ahead = self.finished_ahead
        dead = self.dead or _to_indexes(progress.partition.log, self.dead_offsets)
        progress.dead = IndexSet(dead) if dead else None


def _to_indexes(log: PartitionLog, offsets: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the ranges of log indexes of these ranges of offsets, all of which are of this partition."""
    found = IndexSet()
    for start, end in offsets:
        try:
            first = log.index_of(start)
        except LogUnreadable:
            continue  # mostly because retention has removed the segment since; else only a late ack is not refused
        if first is not None:
            for index in range(first, first + end - start):
                found.add(index)
    return found.ranges()


class _GroupImage(msgspec.Struct, array_like=True):
    group_id: int
    name: str
    last_seen_ms: int
    lost: int
    progress: list[_ProgressImage]
    paused: bool = False
    retry: RetryPolicy | None = None
    has_progress: bool = True
    """In snapshots of older versions that is not known, and the group is kept."""


class _TopicImage(msgspec.Struct, array_like=True):
    topic_id: int
    name: str
    overrides: TopicOverrides
    created_ms: int
    next_offset: int
    partitions: list[tuple[int, int, int, int]]
    """(records, bytes, first index, bytes before it)"""
    groups: list[_GroupImage]
    first_offsets: list[int] = []
    redriven: list[list[tuple[int, int]]] = []
    """By partition, as ranges of indexes."""
    addressed: list[list[tuple[int, int, str]]] = []
    """By partition, as runs of indexes with the one group that gets them."""
    used_ms: int = 0

    @classmethod
    def of(cls, topic: Topic) -> _TopicImage:
        return cls(
            topic.id,
            topic.name,
            topic.overrides,
            topic.created_ms,
            topic.next_offset,
            [(p.count, p.bytes_total, p.first_index, p.first_bytes) for p in topic.partitions],
            [
                _GroupImage(
                    g.id,
                    g.name,
                    g.used_ms,
                    g.lost,
                    [_ProgressImage.of(p) for p in g.progress],
                    g.paused,
                    g.retry,
                    g.has_progress,
                )
                for g in topic.groups.values()
            ],
            [p.first_offset for p in topic.partitions],
            [p.redriven.ranges() if p.redriven is not None else [] for p in topic.partitions],
            [p.addressed.runs() if p.addressed is not None else [] for p in topic.partitions],
            topic.used_ms,
        )

    def restore(self, state: State) -> None:
        created = TopicCreated(self.topic_id, self.name, len(self.partitions), self.overrides, self.created_ms)
        topic = state.topic_created(created)
        topic.next_offset = self.next_offset
        topic.used_ms = self.used_ms
        for partition, (count, bytes_total, first_index, first_bytes) in zip(
            topic.partitions, self.partitions, strict=True
        ):
            partition.count = partition.committed = count
            partition.bytes_total = bytes_total
            partition.first_index = first_index
            partition.first_bytes = first_bytes
            partition.log.start_at(count, bytes_total)
        for partition, first_offset in zip(topic.partitions, self.first_offsets, strict=False):
            partition.first_offset = first_offset
        for partition, ranges in zip(topic.partitions, self.redriven, strict=False):
            partition.redriven = IndexSet(ranges) if ranges else None
        for partition, runs in zip(topic.partitions, self.addressed, strict=False):
            partition.addressed = AddressedMessages(runs) if runs else None
        for image in self.groups:
            group = state.group_created(GroupCreated(image.group_id, topic.id, image.name))
            group.last_seen_ms = image.last_seen_ms
            group.lost = image.lost
            group.paused = image.paused
            group.retry = image.retry
            group.has_progress = image.has_progress
            for progress, saved in zip(group.progress, image.progress, strict=True):
                saved.restore(progress)


class _Snapshot(msgspec.Struct, array_like=True):
    topics: list[_TopicImage]
    produced: list[bytes]
    once: list[bytes]
    deadlines: list[Deadline]
    dead_lettered: list[tuple[str, str, int]]
    batches: list[bytes] = []
    last_topic_id: int = 0
    last_group_id: int = 0
    writers: list[WriterImage] = []


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Snapshot).decode
