"""The broker's memory: what a restart must find again. Applying a change here decides nothing and emits nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from heapq import heappush
from typing import TypeAlias

from slipstream.broker.changes import (
    Change,
    Delivered,
    Extended,
    Failed,
    Finished,
    GroupCreated,
    OnceBegan,
    OnceSettled,
    TopicCreated,
    Trimmed,
)
from slipstream.broker.config import BrokerConfig
from slipstream.broker.envelope import decode_meta
from slipstream.broker.group import Group, Lease, LeaseState, Progress
from slipstream.broker.idempotency import Registry, Status, short
from slipstream.broker.topic import Partition, PartitionLog, Topic
from slipstream.record import Published

LogFactory: TypeAlias = Callable[[int, str, int], PartitionLog]
"""Opens the log of (topic id, topic name, partition)."""

ProduceKey: TypeAlias = tuple[str, int, str]
"""(tenant, final topic, key)"""
OnceKey: TypeAlias = tuple[str, int, str]
"""(tenant, group of a topic, key)"""


class State:
    """Topics, groups, leases and registries."""

    def __init__(self, config: BrokerConfig, open_log: LogFactory) -> None:
        self.config = config
        self.open_log = open_log
        self.topics: dict[str, Topic] = {}
        self.topics_by_id: dict[int, Topic] = {}
        self.groups_by_id: dict[int, Group] = {}
        self._last_group_id = 0
        self.produced = Registry(config.idempotency_ttl_ms, config.idempotency_keys_max)
        self.once = Registry(config.idempotency_ttl_ms, config.idempotency_keys_max)
        self.deadlines: list[tuple[int, int, int, int]] = []
        """Heap of (deadline_ms, topic id, partition, index) of messages somebody may still be waiting for."""
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
        }

    def replay(self, changes: Iterable[Change]) -> None:
        apply = self._apply
        for change in changes:
            apply[type(change)](change)

    def next_topic_id(self) -> int:
        return next(reversed(self.topics_by_id), 0) + 1  # they are there in the order they were created

    def next_group_id(self) -> int:
        return self._last_group_id + 1

    def topic_created(self, change: TopicCreated) -> Topic:
        topic = Topic(change.topic_id, change.name, change.overrides, self.config.topic, change.created_ms)
        topic.partitions = [
            Partition(topic, number, self.open_log(topic.id, topic.name, number)) for number in range(change.partitions)
        ]
        self.topics[topic.name] = self.topics_by_id[topic.id] = topic
        return topic

    def published(self, change: Published) -> None:
        topic = self.topics_by_id[change.topic_id]
        partition = topic.partitions[change.partition]
        record = change.record
        index = partition.append(record, record.size)
        partition.committed = partition.count
        topic.next_offset = max(topic.next_offset, record.offset + 1)
        envelope = decode_meta(record.meta).envelope
        if envelope is None or envelope.dlq is not None:
            return
        if envelope.idempotency_key:
            identity = (short(envelope.tenant_id), topic.id, short(envelope.idempotency_key))
            operation = self.produced.put(identity, Status.COMMITTED, record.timestamp_ms)
            operation.partition, operation.offset = partition.number, record.offset
        if envelope.deadline_ms is not None:
            self.watch_deadline(envelope.deadline_ms, partition, index)

    def watch_deadline(self, deadline_ms: int, partition: Partition, index: int) -> None:
        if len(self.deadlines) < self.config.deadlines_max:
            heappush(self.deadlines, (deadline_ms, partition.topic.id, partition.number, index))

    def group_created(self, change: GroupCreated) -> Group:
        topic = self.topics_by_id[change.topic_id]
        group = Group(change.group_id, topic, change.name)
        topic.groups[group.name] = self.groups_by_id[group.id] = group
        self._last_group_id = max(self._last_group_id, group.id)
        return group

    def delivered(self, change: Delivered) -> Lease:
        progress = self._progress(change.group_id, change.partition)
        lease = Lease(change.offset, change.index, change.size, change.attempts, change.owner, change.lease_until_ms)
        before = progress.leases.get(change.offset)
        if before is not None:
            lease.last_error = before.last_error
        progress.deliver(lease)
        return lease

    def finished(self, change: Finished) -> None:
        progress = self._progress(change.group_id, change.partition)
        progress.finish(change.offset, change.index, change.size)
        if change.outcome:
            self.dead_lettered[progress.partition.topic.name, change.outcome.name.lower()] += 1

    def failed(self, change: Failed) -> Lease | None:
        lease = self._progress(change.group_id, change.partition).leases.get(change.offset)
        if lease is not None:
            lease.state = LeaseState.WAITING
            lease.until_ms = change.due_ms
            lease.last_error = change.last_error
            lease.released = change.released
        return lease

    def extended(self, change: Extended) -> None:
        lease = self._progress(change.group_id, change.partition).leases.get(change.offset)
        if lease is not None:
            lease.state = LeaseState.LEASED
            lease.until_ms = change.lease_until_ms

    def trimmed(self, change: Trimmed) -> int:
        topic = self.topics_by_id[change.topic_id]
        partition = topic.partitions[change.partition]
        partition.first_index = change.first_index
        partition.first_bytes = change.first_bytes
        lost = 0
        for group in topic.groups.values():
            missed = group.progress[change.partition].trim(change.first_index, change.first_bytes)
            group.lost += missed
            lost += missed
        return lost

    def once_began(self, change: OnceBegan) -> None:
        now_ms = change.lease_until_ms
        self.once.put(
            (change.tenant, change.group_id, change.key),
            Status.PENDING,
            now_ms,
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
