"""The broker's state in the words of the API."""

from __future__ import annotations

from slipstream.api import (
    GroupInfo,
    GroupPartition,
    InFlight,
    PartitionInfo,
    RetryPolicyFields,
    TopicConfigFields,
    TopicInfo,
    TopicSummary,
)
from slipstream.broker import Group, Partition, Progress, RetryPolicy, Topic, TopicConfig, TopicOverrides
from slipstream.engine import first_offset, next_offset
from slipstream.record import LogUnreadable

IN_FLIGHT_SHOWN = 1_000


def describe_partition(partition: Partition) -> PartitionInfo:
    return PartitionInfo(
        partition.number,
        first_offset(partition),
        next_offset(partition),
        partition.committed - partition.first_index,
        partition.bytes_total - partition.first_bytes,
    )


def summarize_topic(topic: Topic) -> TopicSummary:
    return TopicSummary(
        topic.name,
        topic.incarnation,
        len(topic.partitions),
        sum(partition.committed - partition.first_index for partition in topic.partitions),
        sum(partition.bytes_total - partition.first_bytes for partition in topic.partitions),
        len(topic.groups),
        max((sum(progress.lag for progress in group.progress) for group in topic.groups.values()), default=0),
        topic.config.retention_ms,
        topic.config.retention_bytes,
    )


def describe_topic(topic: Topic, now_ms: int) -> TopicInfo:
    return TopicInfo(
        topic.name,
        topic.incarnation,
        topic.created_ms,
        topic.next_offset,
        describe_config(topic.config),
        describe_config(topic.overrides),
        [describe_partition(partition) for partition in topic.partitions],
        [describe_group(group, now_ms) for group in topic.groups.values()],
    )


def describe_config(config: TopicConfig | TopicOverrides) -> TopicConfigFields:
    retry = config.retry
    return TopicConfigFields(
        max_in_flight=config.max_in_flight,
        max_waiting_messages=config.max_waiting_messages,
        max_waiting_bytes=config.max_waiting_bytes,
        retry=None
        if retry is None
        else RetryPolicyFields(
            max_attempts=retry.max_attempts, backoff_ms=retry.backoff_ms, max_backoff_ms=retry.max_backoff_ms
        ),
        retention_ms=config.retention_ms,
        retention_bytes=config.retention_bytes,
        hold_unfinished=config.hold_unfinished,
        dead_letters=config.dead_letters,
    )


def to_overrides(fields: TopicConfigFields, before: RetryPolicy) -> TopicOverrides:
    """What is not said of the retry policy stays as it was before."""
    retry = fields.retry
    return TopicOverrides(
        max_in_flight=fields.max_in_flight,
        max_waiting_messages=fields.max_waiting_messages,
        max_waiting_bytes=fields.max_waiting_bytes,
        retry=None
        if retry is None
        else RetryPolicy(
            before.max_attempts if retry.max_attempts is None else retry.max_attempts,
            before.backoff_ms if retry.backoff_ms is None else retry.backoff_ms,
            before.max_backoff_ms if retry.max_backoff_ms is None else retry.max_backoff_ms,
        ),
        retention_ms=fields.retention_ms,
        retention_bytes=fields.retention_bytes,
        hold_unfinished=fields.hold_unfinished,
        dead_letters=fields.dead_letters,
    )


def describe_group(group: Group, now_ms: int, *, messages: bool = False) -> GroupInfo:
    partitions = [_describe_progress(progress) for progress in group.progress]
    oldest = min((p.oldest_unfinished_ms for p in partitions if p.oldest_unfinished_ms is not None), default=None)
    return GroupInfo(
        topic=group.topic.name,
        group=group.name,
        paused=group.paused,
        consumers=len(group.consumers),
        lag=sum(partition.lag for partition in partitions),
        in_flight=sum(partition.in_flight for partition in partitions),
        delayed=sum(partition.delayed for partition in partitions),
        oldest_unfinished_age_ms=0 if oldest is None else max(0, now_ms - oldest),
        idle_ms=0 if group.consumers else max(0, now_ms - group.last_seen_ms),
        lost=group.lost,
        partitions=partitions,
        messages=_in_flight(group) if messages else [],
    )


def _describe_progress(progress: Progress) -> GroupPartition:
    return GroupPartition(
        progress.partition.number,
        progress.watermark,
        progress.lag,
        len(progress.leases),
        len(progress.postponed),
        oldest_unfinished_ms(progress),
        progress.unreadable,
    )


def oldest_unfinished(progress: Progress) -> int:
    """The index of the oldest message that somebody should be working on; what is not due yet is not counted."""
    return min((lease.index for lease in progress.leases.values()), default=progress.position)


def oldest_unfinished_ms(progress: Progress) -> int | None:
    """When it was stored; None where there is none."""
    index = oldest_unfinished(progress)
    if index >= progress.partition.committed:
        return None
    if progress.oldest_seen[0] != index:
        try:
            progress.oldest_seen = (index, progress.partition.log.read(index).timestamp_ms)
        except LogUnreadable:
            return None  # the group says so itself, in `unreadable`
    return progress.oldest_seen[1]


def _in_flight(group: Group) -> list[InFlight]:
    found: list[InFlight] = []
    for progress in group.progress:
        for lease in progress.leases.values():
            if len(found) == IN_FLIGHT_SHOWN:
                return found
            state = lease.state.name.lower()
            found.append(
                InFlight(
                    progress.partition.number,
                    lease.offset,
                    lease.owner,
                    lease.attempts,
                    state,  # type: ignore[arg-type]  # the names are the three words
                    lease.until_ms,
                    lease.last_error,
                )
            )
    return found
