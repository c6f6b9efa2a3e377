"""The broker's state as `slipstream doctor` rebuilds it: from what is left of the journal, losing as little as can be.

A restart applies every change or none (`Engine.recover`). Here each is looked at on its own: what refers to something
that was lost is moved to where it belongs now, or left out and counted.
"""

from __future__ import annotations

from collections import Counter
from heapq import heapify

import msgspec
from msgspec.structs import replace

from slipstream.broker import BrokerConfig
from slipstream.broker.changes import (
    Change,
    Delivered,
    Extended,
    Failed,
    Finished,
    GroupCreated,
    TopicCreated,
    Trimmed,
    decode_changes,
)
from slipstream.broker.group import Group, Progress
from slipstream.broker.snapshot import restore_snapshot, take_snapshot
from slipstream.broker.state import LogFactory, State
from slipstream.broker.topic import Partition, Topic
from slipstream.record import LogUnreadable, Published
from slipstream.store.checkpoint import SegmentInfo
from slipstream.store.doctor import Contents, Loss
from slipstream.store.frame import FRAME_HEADER_SIZE


class SalvagedState:
    """Takes commits in order, and `lose` wherever some are missing."""

    def __init__(self, open_log: LogFactory) -> None:
        self.state = State(BrokerConfig(), open_log)
        self._safe: dict[tuple[int, int], int] | None = None
        """Once something was lost: (topic id, partition) → how many of its records still have their old index."""
        self._lost_offsets: dict[int, set[int]] = {}
        self._dropped: Counter[tuple[str, bool]] = Counter()
        """(what it was, whether it was a message) → how many changes were left out."""

    def restore(self, snapshot: bytes) -> None:
        try:
            restore_snapshot(self.state, snapshot)
        except (msgspec.DecodeError, LookupError, ValueError, LogUnreadable) as error:
            raise ValueError(f"the snapshot cannot be applied: {error}") from error

    def apply(self, frame: bytes) -> int:
        """Returns how many of the commit's changes could not be applied."""
        try:
            changes = decode_changes(frame)
        except msgspec.DecodeError as error:
            raise ValueError(f"the commit cannot be decoded: {error}") from error
        return sum(not self._apply(change) for change in changes)

    def lose(self, damaged: bytes) -> None:
        """Commits are missing here; `damaged` is what stands in their place."""
        if self._safe is None:
            topics = self.state.topics_by_id.values()
            self._safe = {(topic.id, p.number): p.count for topic in topics for p in topic.partitions}
        try:
            changes = decode_changes(damaged[FRAME_HEADER_SIZE:])
        except msgspec.DecodeError:
            return
        # Readable all the same, though not to be believed: good enough to say which messages these were.
        for change in changes:
            topic = self.state.topics_by_id.get(change.topic_id) if isinstance(change, Published) else None
            if topic is not None and isinstance(change, Published) and change.record.offset == topic.next_offset:
                self._lost_offsets.setdefault(topic.id, set()).add(topic.next_offset)
                topic.next_offset += 1

    def losses(self) -> list[Loss]:
        found = []
        for topic_id, offsets in self._lost_offsets.items():
            for first, last in _ranges(offsets):
                name = self.state.topics_by_id[topic_id].name
                found.append(
                    Loss(
                        what=f"messages of {name}, offsets {first} to {last}",
                        topic=name,
                        first_offset=first,
                        last_offset=last,
                        messages=last - first + 1,
                    )
                )
        for (what, is_message), count in sorted(self._dropped.items()):
            found.append(Loss(what=f"{count} {what}", messages=count if is_message else 0))
        return found

    def first_index(self, topic_id: int, partition: int) -> int | None:
        topic = self.state.topics_by_id.get(topic_id)
        return topic.partitions[partition].first_index if topic is not None else None

    def contents(self) -> Contents:
        topics = self.state.topics.values()
        messages = sum(p.count - p.first_index for topic in topics for p in topic.partitions)
        return Contents(topics=len(topics), groups=len(self.state.groups_by_id), messages=messages)

    def snapshot(self) -> bytes:
        return take_snapshot(self.state)

    # One change

    def _apply(self, change: Change) -> bool:
        usable = self._usable(change)
        if usable is None:
            self._dropped[_describe(change), isinstance(change, Published)] += 1
            return False
        self.state.replay([usable])
        return True

    def _usable(self, change: Change) -> Change | None:
        state = self.state
        if isinstance(change, TopicCreated):
            known = change.topic_id in state.topics_by_id or change.name in state.topics
            return None if known else change
        if isinstance(change, GroupCreated):
            known = change.group_id in state.groups_by_id or change.topic_id not in state.topics_by_id
            return None if known else change
        if isinstance(change, Published):
            return self._published(change)
        if isinstance(change, Trimmed):
            return self._trimmed(change)
        if isinstance(change, Delivered | Finished | Failed | Extended):
            group = state.groups_by_id.get(change.group_id)
            if group is None or change.partition >= len(group.progress):
                return None
            progress = group.progress[change.partition]
            if isinstance(change, Delivered):
                return self._delivered(change, group, progress)
            if isinstance(change, Finished):
                return self._finished(change, progress)
        return change

    def _published(self, change: Published) -> Change | None:
        topic = self.state.topics_by_id.get(change.topic_id)
        if topic is None or change.partition >= len(topic.partitions) or change.record.offset < topic.next_offset:
            return None
        if change.record.offset > topic.next_offset:
            # Offsets count per topic without a gap, so these were in what is missing.
            self._lost_offsets.setdefault(topic.id, set()).update(range(topic.next_offset, change.record.offset))
        return change

    def _trimmed(self, change: Trimmed) -> Change | None:
        topic = self.state.topics_by_id.get(change.topic_id)
        if topic is None or change.partition >= len(topic.partitions):
            return None
        partition = topic.partitions[change.partition]
        settled = partition.count if self._safe is None else self._safe.get((topic.id, partition.number), 0)
        # Past that nobody knows which records it meant; retention will come to them again.
        return change if partition.first_index < change.first_index <= settled else None

    def _delivered(self, change: Delivered, group: Group, progress: Progress) -> Change | None:
        index = self._locate(progress.partition, change.offset, change.index)
        if index is None:
            return None
        if self._safe is not None:
            self._redeliver_skipped(change, group, progress, index)
        return replace(change, index=index)

    def _redeliver_skipped(self, change: Delivered, group: Group, progress: Progress, index: int) -> None:
        """Messages between here and the last known delivery were delivered too, and nobody knows what became of them.

        Without a lease they would count as finished; with one that has run out they are delivered once more.
        """
        finished = {index for index, _ in progress.finished_ahead.values()}
        for skipped in range(progress.position, index):
            if skipped in finished:
                continue
            try:
                record = progress.partition.log.read(skipped)
            except LogUnreadable:
                continue  # in a damaged segment, which is cut out later
            again = Delivered(group.id, change.partition, record.offset, skipped, record.size, 1, change.owner, 0)
            self.state.replay([again])

    def _finished(self, change: Finished, progress: Progress) -> Change | None:
        if change.offset in progress.leases or self._safe is None:
            return change
        index = self._locate(progress.partition, change.offset, change.index)
        if index is None:
            return None
        try:
            size = progress.partition.log.read(index).size
        except LogUnreadable:
            size = change.size
        return replace(change, index=index, size=size)

    def _locate(self, partition: Partition, offset: int, index: int) -> int | None:
        """Where the record stands now: records lost before it have moved it down."""
        safe = partition.count if self._safe is None else self._safe.get((partition.topic.id, partition.number), 0)
        if 0 <= index < safe:
            return index
        if self._safe is None:
            return None
        try:
            return partition.log.index_of(offset)
        except LogUnreadable:
            return None

    # Segments that are gone

    def cut(self, segment: SegmentInfo) -> Loss:
        """Takes a segment's records out and closes the gap: every later record of the partition gets a lower index."""
        topic = self.state.topics_by_id[segment.topic_id]
        partition = topic.partitions[segment.partition]
        first, end = segment.first_index, segment.end_index
        start_bytes = segment.end_bytes - segment.payload_bytes
        gone = end - max(first, partition.first_index)
        partition.count -= segment.count
        partition.committed = partition.count
        partition.bytes_total -= segment.payload_bytes
        if partition.first_index > first:
            partition.first_index, partition.first_bytes = first, start_bytes
        for group in topic.groups.values():
            group.lost += _cut_progress(group.progress[segment.partition], segment)
        self._cut_deadlines(topic, segment)
        return Loss(
            what=f"{gone} messages of {topic.name}/{segment.partition}, "
            f"offsets {segment.first_offset} to {segment.last_offset}",
            topic=topic.name,
            partition=segment.partition,
            first_offset=segment.first_offset,
            last_offset=segment.last_offset,
            messages=gone,
        )

    def _cut_deadlines(self, topic: Topic, segment: SegmentInfo) -> None:
        kept = []
        for due_ms, topic_id, number, index in self.state.deadlines:
            here = (topic_id, number) == (topic.id, segment.partition)
            if not here or index < segment.first_index:
                kept.append((due_ms, topic_id, number, index))
            elif index >= segment.end_index:
                kept.append((due_ms, topic_id, number, index - segment.count))
        heapify(kept)
        self.state.deadlines = kept


def _cut_progress(progress: Progress, segment: SegmentInfo) -> int:
    """Returns how many of the segment's messages the group had not finished."""
    first, end, count = segment.first_index, segment.end_index, segment.count
    leased = [lease for lease in progress.leases.values() if first <= lease.index < end]
    ahead = {offset: size for offset, (index, size) in progress.finished_ahead.items() if first <= index < end}
    for lease in leased:
        del progress.leases[lease.offset]
    for lease in progress.leases.values():
        if lease.index >= end:
            lease.index -= count
    progress.finished_ahead = {
        offset: (index - count if index >= end else index, size)
        for offset, (index, size) in progress.finished_ahead.items()
        if offset not in ahead
    }
    if progress.position >= end:
        progress.position -= count
        progress.done_bytes += sum(lease.size for lease in leased) - segment.payload_bytes
        return len(leased)
    unread = end - max(progress.position, first)
    if progress.position > first:
        progress.position = first
        progress.done_bytes = (
            segment.end_bytes
            - segment.payload_bytes
            - sum(lease.size for lease in progress.leases.values())
            + sum(size for _, size in progress.finished_ahead.values())
        )
    else:
        progress.done_bytes -= sum(ahead.values())
    return len(leased) + unread - len(ahead)


def _ranges(offsets: set[int]) -> list[tuple[int, int]]:
    ranges: list[tuple[int, int]] = []
    for offset in sorted(offsets):
        if ranges and ranges[-1][1] == offset - 1:
            ranges[-1] = (ranges[-1][0], offset)
        else:
            ranges.append((offset, offset))
    return ranges


def _describe(change: Change) -> str:
    if isinstance(change, Published):
        return f"messages of the topic with id {change.topic_id}, whose creation is lost"
    if isinstance(change, Delivered | Finished | Failed | Extended):
        return "changes to messages or groups that are lost"
    if isinstance(change, Trimmed):
        return "removals by retention, which will be made again"
    return "changes that do not fit what is left"
