"""The broker's memory: what a restart must find again. Applying a change here decides nothing and emits nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from heapq import heappush
from typing import NamedTuple, TypeAlias

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
    GroupRetryChanged,
    OnceBegan,
    OnceSettled,
    Outcome,
    Postponed,
    Redriven,
    TopicChanged,
    TopicCreated,
    TopicDeleted,
    Trimmed,
    WriterCommitted,
)
from slipstream.broker.config import BrokerConfig
from slipstream.broker.envelope import decode_meta
from slipstream.broker.errors import NotFound
from slipstream.broker.evidence import Evidence, with_attempt
from slipstream.broker.group import Group, Progress
from slipstream.broker.idempotency import Operation, Registry, Status, short
from slipstream.broker.indexes import IndexSet
from slipstream.broker.lease import Lease
from slipstream.broker.topic import Partition, PartitionLog, Topic
from slipstream.broker.writers import Writers
from slipstream.record import Published, PublishedBatch

LogFactory: TypeAlias = Callable[[int, str, int], PartitionLog]
"""Opens the log of (topic id, topic name, partition)."""

ProduceKey: TypeAlias = tuple[str, int, str]
"""(tenant, final topic, key)"""
OnceKey: TypeAlias = tuple[str, int, str]
"""(tenant, group of a topic, key)"""


class Deadline(NamedTuple):
    """When a message is dead-lettered, and where it stands."""

    due_ms: int
    topic_id: int
    partition: int
    log_index: int
    offset: int = -1
    """-1 in snapshots of earlier versions."""


class State:
    """Topics, groups, leases and registries."""

    def __init__(self, config: BrokerConfig, open_log: LogFactory) -> None:
        self.config = config
        self.open_log = open_log
        self.topics: dict[str, Topic] = {}
        self.topics_by_id: dict[int, Topic] = {}
        self.groups_by_id: dict[int, Group] = {}
        self.last_topic_id = 0
        self.last_group_id = 0
        """Numbers are never given twice, or what is left of a topic could be taken for another's."""
        self.produced = Registry(config.idempotency_ttl_ms, config.idempotency_keys_max)
        self.batches = Registry(config.idempotency_ttl_ms, config.idempotency_keys_max)
        self.once = Registry(config.idempotency_ttl_ms, config.idempotency_keys_max)
        self.writers = Writers(config.writer_ttl_ms)
        self.topics_version = 0
        """Another one whenever a topic was created, changed or deleted."""
        self.deadlines: list[Deadline] = []
        """Heap of the deadlines that have not passed, finished messages included."""
        self.dead_lettered: Counter[tuple[str, str]] = Counter()
        """(topic, reason) → how many, ever."""
        self._apply: dict[type[Change], Callable[..., object]] = {
            TopicCreated: self.topic_created,
            Published: self.published,
            GroupCreated: self.group_created,
            Delivered: self.delivered,
            Finished: self.finished,
            Failed: self.failed,
            Extended: self.extended,
            Trimmed: self.trimmed,
            OnceBegan: self.once_began,
            OnceSettled: self.once_settled,
            TopicChanged: self.topic_changed,
            TopicDeleted: self.topic_deleted,
            GroupMoved: self.group_moved,
            GroupPaused: self.group_paused,
            GroupForgotten: self.group_forgotten,
            Postponed: self.postponed,
            BatchCommitted: self.batch_committed,
            Redriven: self.redriven,
            PublishedBatch: self.published_batch,
            DeliveredRun: self.delivered_run,
            FinishedBatch: self.finished_batch,
            WriterCommitted: self.writer_committed,
            GroupRetryChanged: self.group_retry_changed,
        }

    def replay(self, changes: Iterable[Change]) -> None:
        apply = self._apply
        for change in changes:
            apply[type(change)](change)

    def topic(self, name: str) -> Topic:
        topic = self.topics.get(name)
        if topic is None:
            raise NotFound(f"topic does not exist (create it first): {name}")
        return topic

    def evidence(self) -> Iterator[Evidence]:
        """What is kept of the attempts at each message in flight."""
        for group in self.groups_by_id.values():
            for progress in group.progress:
                for held in (progress.leases, progress.postponed):
                    for lease in held.values():
                        yield lease.evidence

    def next_topic_id(self) -> int:
        return self.last_topic_id + 1

    def next_group_id(self) -> int:
        return self.last_group_id + 1

    def topic_created(self, change: TopicCreated) -> Topic:
        topic = Topic(change.topic_id, change.name, change.overrides, self.config.topic, change.created_ms)
        self._add_partitions(topic, change.partitions)
        self.topics[topic.name] = self.topics_by_id[topic.id] = topic
        self.last_topic_id = max(self.last_topic_id, topic.id)
        self.topics_version += 1
        return topic

    def topic_changed(self, change: TopicChanged) -> None:
        topic = self.topics_by_id[change.topic_id]
        topic.overrides = change.overrides
        topic.config = change.overrides.over(self.config.topic)
        self._add_partitions(topic, change.partitions)
        self.topics_version += 1

    def _add_partitions(self, topic: Topic, count: int) -> None:
        for number in range(len(topic.partitions), count):
            partition = Partition(topic, number, self.open_log(topic.id, topic.name, number))
            topic.partitions.append(partition)
            for group in topic.groups.values():
                group.progress.append(Progress(group, partition))

    def topic_deleted(self, change: TopicDeleted) -> None:
        """Its dead letters, which are another topic, stay."""
        topic = self.topics_by_id.pop(change.topic_id)
        del self.topics[topic.name]
        self.topics_version += 1
        for group in list(topic.groups.values()):
            self.group_forgotten(GroupForgotten(group.id))

    def published(self, change: Published) -> None:
        topic = self.topics_by_id[change.topic_id]
        partition = topic.partitions[change.partition]
        record = change.record
        index = partition.append(record, record.size)
        partition.committed = partition.count
        topic.next_offset = max(topic.next_offset, record.offset + 1)
        topic.used_ms = record.timestamp_ms
        meta = decode_meta(record.meta)
        if meta.only_group:
            partition.address(index, meta.only_group)
        envelope = meta.envelope
        if envelope is None or envelope.dlq is not None:
            return
        if envelope.idempotency_key and not meta.redriven_from:
            identity = (short(envelope.tenant_id), topic.id, short(envelope.idempotency_key))
            operation = self.produced.put(identity, Status.COMMITTED, record.timestamp_ms)
            operation.partition, operation.offset = partition.number, record.offset
        if envelope.deadline_ms is not None:
            self.watch_deadline(envelope.deadline_ms, partition, index, record.offset)

    def published_batch(self, change: PublishedBatch) -> None:
        for each in change.published():
            self.published(each)

    def watch_deadline(self, deadline_ms: int, partition: Partition, index: int, offset: int) -> None:
        if len(self.deadlines) < self.config.deadlines_max:
            heappush(self.deadlines, Deadline(deadline_ms, partition.topic.id, partition.number, index, offset))

    def group_created(self, change: GroupCreated) -> Group:
        topic = self.topics_by_id[change.topic_id]
        group = Group(change.group_id, topic, change.name)
        topic.groups[group.name] = self.groups_by_id[group.id] = group
        self.last_group_id = max(self.last_group_id, group.id)
        return group

    def group_moved(self, change: GroupMoved) -> None:
        self._progress(change.group_id, change.partition).move(change.index, change.cursor, change.done_bytes)
        self.groups_by_id[change.group_id].has_progress = True

    def group_paused(self, change: GroupPaused) -> None:
        self.groups_by_id[change.group_id].paused = change.paused

    def group_retry_changed(self, change: GroupRetryChanged) -> None:
        self.groups_by_id[change.group_id].retry = change.retry

    def group_forgotten(self, change: GroupForgotten) -> None:
        group = self.groups_by_id.pop(change.group_id)
        del group.topic.groups[group.name]
        for progress in group.progress:
            progress.timer_ms = None  # nothing is left to look after

    def postponed(self, change: Postponed) -> None:
        lease = Lease(change.offset, change.index, change.size, 0, "", change.due_ms)
        self._progress(change.group_id, change.partition).postpone(lease, change.due_ms)

    def batch_committed(self, change: BatchCommitted) -> Operation:
        operation = self.batches.put(("", change.topic_id, change.key), Status.COMMITTED, change.at_ms)
        operation.partition, operation.offset = change.partitions, change.first_offset
        operation.count, operation.places = change.count, change.places
        return operation

    def writer_committed(self, change: WriterCommitted) -> None:
        self.writers.commit(change.writer, change.sequence, change.at_ms)

    def redriven(self, change: Redriven) -> None:
        partition = self.topics_by_id[change.topic_id].partitions[change.partition]
        if partition.redriven is None:
            partition.redriven = IndexSet()
        partition.redriven.add(change.index)

    def delivered(self, change: Delivered) -> Lease:
        progress = self._progress(change.group_id, change.partition)
        lease = Lease(
            change.offset,
            change.index,
            change.size,
            change.attempts,
            change.owner,
            change.lease_until_ms,
            change.retry,
        )
        lease.delivered_ms = change.at_ms
        progress.group.last_seen_ms = max(progress.group.last_seen_ms, change.at_ms)
        # Most messages are delivered for the first time, and nothing of them is held.
        is_held = change.attempts > 1 or progress.postponed or change.offset in progress.leases
        before = progress.take_out(change.offset) if is_held else None
        if before is not None:
            lease.evidence = before.evidence
            lease.last_error = before.last_error
            lease.excused = before.excused
            lease.blamed = before.blamed
        progress.deliver(lease)
        return lease

    def finished(self, change: Finished) -> None:
        progress = self._progress(change.group_id, change.partition)
        if change.outcome is Outcome.NOT_ADDRESSED:
            progress.pass_over(change.offset, change.index, change.size)
            return
        progress.finish(change.offset, change.index, change.size)
        if change.outcome is Outcome.ACKED:
            progress.group.has_progress = True
        if change.outcome and change.outcome is not Outcome.DISCARDED:
            if progress.dead is None:
                progress.dead = IndexSet()
            progress.dead.add(change.index)
            self.dead_lettered[progress.partition.topic.name, change.outcome.name.lower()] += 1

    def delivered_run(self, change: DeliveredRun) -> None:
        for each in change.delivered():
            self.delivered(each)

    def finished_batch(self, change: FinishedBatch) -> None:
        for each in change.finished():
            self.finished(each)

    def failed(self, change: Failed) -> Lease | None:
        progress = self._progress(change.group_id, change.partition)
        lease = progress.find(change.offset)
        if lease is not None:
            lease.last_error = change.last_error
            lease.released = change.released
            lease.is_attempted = change.is_attempted
            lease.excused += change.excused
            if change.attempt is not None:
                lease.evidence = with_attempt(lease.evidence, change.attempt)
            progress.postpone(lease, change.due_ms)
        return lease

    def extended(self, change: Extended) -> None:
        progress = self._progress(change.group_id, change.partition)
        lease = progress.find(change.offset)
        if lease is not None:
            progress.extend(lease, change.lease_until_ms)

    def trimmed(self, change: Trimmed) -> int:
        topic = self.topics_by_id[change.topic_id]
        partition = topic.partitions[change.partition]
        partition.first_index = change.first_index
        partition.first_bytes = change.first_bytes
        partition.first_offset = change.first_offset
        if partition.redriven is not None:
            partition.redriven.drop_below(change.first_index)
        lost = 0
        for group in topic.groups.values():
            missed = group.progress[change.partition].trim(change.first_index, change.first_bytes, change.first_offset)
            group.lost += missed
            lost += missed
        if partition.addressed is not None:
            partition.addressed.drop_below(change.first_index)
        return lost

    def once_began(self, change: OnceBegan) -> None:
        self.once.put(
            (change.tenant, change.group_id, change.key),
            Status.PENDING,
            0,  # when it began is not in the change, and nothing may expire because of how long it is leased
            owner=change.owner,
            lease_until_ms=change.lease_until_ms,
        )

    def once_settled(self, change: OnceSettled) -> None:
        self.once.put(
            (change.tenant, change.group_id, change.key),
            Status.COMMITTED if change.committed else Status.FAILED,
            change.at_ms,
            error=change.error,
        )

    def _progress(self, group_id: int, partition: int) -> Progress:
        return self.groups_by_id[group_id].progress[partition]
