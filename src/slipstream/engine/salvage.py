"""The broker's state as `slipstream doctor` rebuilds it: from what is left of the journal, losing as little as can be.

A restart applies every change or none (`Engine.recover`). Here each is looked at on its own: what refers to something
that was lost is moved to where it belongs now, or left out and counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from heapq import heapify

import msgspec
from msgspec.structs import replace

from slipstream.broker import BrokerConfig
from slipstream.broker.changes import (
    BatchCommitted,
    Change,
    Delivered,
    DeliveredRun,
    Extended,
    Failed,
    Finished,
    FinishedBatch,
    GroupCreated,
    GroupForgotten,
    GroupMoved,
    GroupPaused,
    Outcome,
    Postponed,
    Redriven,
    TopicChanged,
    TopicCreated,
    TopicDeleted,
    Trimmed,
    decode_changes,
)
from slipstream.broker.envelope import decode_meta
from slipstream.broker.group import Group, Progress
from slipstream.broker.snapshot import restore_snapshot, take_snapshot
from slipstream.broker.state import LogFactory, State
from slipstream.broker.topic import Partition, Topic
from slipstream.record import LogUnreadable, Published, PublishedBatch
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
        return sum(not self._apply(change) for change in _one_by_one(changes))

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
        for change in _one_by_one(changes):
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
        known = topic is not None and partition < len(topic.partitions)
        return topic.partitions[partition].first_index if topic is not None and known else None

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
            return self._topic_created(change)
        if isinstance(change, GroupCreated):
            return self._group_created(change)
        if isinstance(change, Published):
            return self._published(change)
        if isinstance(change, Trimmed):
            return self._trimmed(change)
        if isinstance(change, Redriven):
            return self._redriven(change)
        if isinstance(change, TopicDeleted):
            self._lost_offsets.pop(change.topic_id, None)  # they would be gone by now
        if isinstance(change, TopicChanged | TopicDeleted | BatchCommitted):
            return change if change.topic_id in state.topics_by_id else None
        if isinstance(change, GroupPaused | GroupForgotten):
            return change if change.group_id in state.groups_by_id else None
        if isinstance(change, Delivered | Finished | Failed | Extended | Postponed | GroupMoved):
            group = state.groups_by_id.get(change.group_id)
            if group is None or change.partition >= len(group.progress):
                return None
            progress = group.progress[change.partition]
            if isinstance(change, Delivered | Postponed):
                return self._delivered(change, group, progress)
            if isinstance(change, Finished):
                return self._finished(change, progress)
            if isinstance(change, GroupMoved):
                return self._moved(change, progress.partition)
        return change

    def _topic_created(self, change: TopicCreated) -> Change | None:
        if change.topic_id in self.state.topics_by_id:
            return None
        before = self.state.topics.get(change.name)
        if before is not None:
            if self._safe is None:
                return None
            # That the one before it was deleted is in what is missing.
            self._apply(TopicDeleted(before.id))
        return change

    def _group_created(self, change: GroupCreated) -> Change | None:
        topic = self.state.topics_by_id.get(change.topic_id)
        if topic is None or change.group_id in self.state.groups_by_id:
            return None
        before = topic.groups.get(change.name)
        if before is not None:
            if self._safe is None:
                return None
            self._apply(GroupForgotten(before.id))  # likewise
        return change

    def _published(self, change: Published) -> Change | None:
        topic = self.state.topics_by_id.get(change.topic_id)
        if topic is None or change.record.offset < topic.next_offset:
            return None
        if change.partition >= len(topic.partitions):
            if self._safe is None:
                return None
            # That the topic has grown is in what is missing.
            self._apply(TopicChanged(topic.id, topic.overrides, change.partition + 1))
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

    def _redriven(self, change: Redriven) -> Change | None:
        topic = self.state.topics_by_id.get(change.topic_id)
        if topic is None or change.partition >= len(topic.partitions):
            return None
        index = self._locate(topic.partitions[change.partition], change.offset, change.index)
        return None if index is None else replace(change, index=index)

    def _moved(self, change: GroupMoved, partition: Partition) -> Change | None:
        settled = partition.count if self._safe is None else self._safe.get((partition.topic.id, partition.number), 0)
        if change.index <= settled:
            return change
        if self._safe is None:
            return None
        try:
            index = max(partition.first_index, partition.log.index_from(change.cursor + 1))
            return replace(change, index=index, done_bytes=partition.log.bytes_before(index))
        except LogUnreadable:
            return None

    def _delivered(self, change: Delivered | Postponed, group: Group, progress: Progress) -> Change | None:
        index = self._locate(progress.partition, change.offset, change.index)
        if index is None:
            return None
        if self._safe is not None:
            self._go_back(change, progress, index)
            self._redeliver_skipped(change, group, progress, index)
        return replace(change, index=index)

    def _go_back(self, change: Delivered | Postponed, progress: Progress, index: int) -> None:
        """It had finished this one: that it was sent back is in what is missing.

        How far nobody knows. What it had not finished below comes again, for it is not known to be finished since.
        """
        held = change.offset in progress.leases or change.offset in progress.postponed
        if index >= progress.position or held:
            return
        log = progress.partition.log
        try:
            start = min(index, progress.oldest_unfinished)
            cursor = log.read(start).offset - 1
            self.state.replay([GroupMoved(change.group_id, change.partition, start, cursor, log.bytes_before(start))])
        except LogUnreadable:
            return  # in a damaged segment, which is cut out later

    def _redeliver_skipped(self, change: Delivered | Postponed, group: Group, progress: Progress, index: int) -> None:
        """Messages between here and the last known delivery were delivered too, and nobody knows what became of them.

        Without a lease they would count as finished; with one that has run out they are delivered once more. What has
        a time to be delivered at is not delivered before that.
        """
        owner = change.owner if isinstance(change, Delivered) else ""
        finished = {index for index, _ in progress.finished_ahead.values()}
        for skipped in range(progress.position, index):
            if skipped in finished or progress.partition.first_for(group.name, skipped) != skipped:
                continue
            try:
                record = progress.partition.log.read(skipped)
            except LogUnreadable:
                continue  # in a damaged segment, which is cut out later
            due_ms = decode_meta(record.meta).deliver_at_ms
            place = (group.id, change.partition, record.offset, skipped, record.size)
            again = Delivered(*place, 1, owner, 0) if due_ms is None else Postponed(*place, due_ms)
            self.state.replay([again])

    def _finished(self, change: Finished, progress: Progress) -> Change | None:
        held = progress.leases.get(change.offset) or progress.postponed.get(change.offset)
        if held is not None:
            return replace(change, index=held.index)
        if self._safe is None:
            return change
        if change.outcome is Outcome.NOT_ADDRESSED:
            return replace(change, index=-1)  # the start passes over it again, once what comes before it was delivered
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
        if partition.first_index >= first:
            partition.first_index, partition.first_bytes = first, start_bytes
            partition.first_offset = max(partition.first_offset, segment.last_offset + 1)
        if partition.redriven is not None:
            partition.redriven.cut_out(first, end)
        for group in topic.groups.values():
            group.lost += _cut_progress(group.progress[segment.partition], segment)
        if partition.addressed is not None:
            partition.addressed.cut_out(first, end)
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
        for deadline in self.state.deadlines:
            here = (deadline.topic_id, deadline.partition) == (topic.id, segment.partition)
            if not here or deadline.log_index < segment.first_index:
                kept.append(deadline)
            elif deadline.log_index >= segment.end_index:
                kept.append(deadline._replace(log_index=deadline.log_index - segment.count))
        heapify(kept)
        self.state.deadlines = kept


def _cut_progress(progress: Progress, segment: SegmentInfo) -> int:
    """Returns how many of the segment's messages the group had not finished."""
    first, end, count = segment.first_index, segment.end_index, segment.count
    leased = []
    for held in (progress.leases, progress.postponed):
        gone = [lease for lease in held.values() if first <= lease.index < end]
        for lease in gone:
            progress.take_out(lease.offset)
        for lease in held.values():
            if lease.index >= end:
                lease.index -= count
        leased += gone
    ahead = {offset: size for offset, (index, size) in progress.finished_ahead.items() if first <= index < end}
    progress.finished_ahead = {
        offset: (index - count if index >= end else index, size)
        for offset, (index, size) in progress.finished_ahead.items()
        if offset not in ahead
    }
    if progress.dead is not None:
        progress.dead.cut_out(first, end)
    if progress.position >= end:
        progress.position -= count
        progress.done_bytes += sum(lease.size for lease in leased) - segment.payload_bytes
        return len(leased)
    unseen = max(progress.position, first)
    unread = end - unseen - progress.partition.for_others(progress.group.name, unseen, end)
    if progress.position > first:
        progress.position = first
        progress.done_bytes = (
            segment.end_bytes
            - segment.payload_bytes
            - sum(lease.size for held in (progress.leases, progress.postponed) for lease in held.values())
            + sum(size for _, size in progress.finished_ahead.values())
        )
    else:
        progress.done_bytes -= sum(ahead.values())
    return len(leased) + unread - len(ahead)


def _one_by_one(changes: list[Change]) -> Iterator[Change]:
    """Each message of a batch on its own: some may be usable where others are not."""
    for change in changes:
        if isinstance(change, PublishedBatch):
            yield from change.published()
        elif isinstance(change, DeliveredRun):
            yield from change.delivered()
        elif isinstance(change, FinishedBatch):
            yield from change.finished()
        else:
            yield change


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
    if isinstance(change, Delivered | Finished | Failed | Extended | Postponed):
        return "changes to messages or groups that are lost"
    if isinstance(change, GroupMoved | GroupPaused | GroupForgotten):
        return "moves, pauses and ends of groups that are lost, or of their place"
    if isinstance(change, TopicChanged | TopicDeleted | BatchCommitted):
        return "changes to topics that are lost"
    if isinstance(change, Redriven):
        return "marks of dead letters that were sent back, which may be sent back again"
    if isinstance(change, Trimmed):
        return "removals by retention, which will be made again"
    return "changes that do not fit what is left"
