"""The broker's state in the words of the API."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from slipstream.api import (
    ConsumerInfo,
    GroupInfo,
    GroupPartition,
    InFlight,
    PartitionInfo,
    RetryingMessage,
    RetryPolicyFields,
    TopicConfigFields,
    TopicInfo,
    TopicSummary,
)
from slipstream.broker import (
    Consumer,
    Group,
    Lease,
    Partition,
    Progress,
    RetryPolicy,
    Topic,
    TopicConfig,
    TopicOverrides,
)
from slipstream.engine import first_offset, next_offset
from slipstream.record import LogUnreadable

IN_FLIGHT_SHOWN = 1_000
READERS_SHOWN = 1_000


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
    return TopicConfigFields(
        max_in_flight=config.max_in_flight,
        max_waiting_messages=config.max_waiting_messages,
        max_waiting_bytes=config.max_waiting_bytes,
        retry=None if config.retry is None else describe_retry(config.retry),
        retention_ms=config.retention_ms,
        retention_bytes=config.retention_bytes,
        hold_unfinished=config.hold_unfinished,
        dead_letters=config.dead_letters,
        expiry_ms=config.expiry_ms,
    )


def describe_retry(retry: RetryPolicy) -> RetryPolicyFields:
    return RetryPolicyFields(
        max_attempts=retry.max_attempts, backoff_ms=retry.backoff_ms, max_backoff_ms=retry.max_backoff_ms
    )


def to_retry(fields: RetryPolicyFields, before: RetryPolicy) -> RetryPolicy:
    """Return the policy of these fields; those that are left out are as before."""
    return RetryPolicy(
        before.max_attempts if fields.max_attempts is None else fields.max_attempts,
        before.backoff_ms if fields.backoff_ms is None else fields.backoff_ms,
        before.max_backoff_ms if fields.max_backoff_ms is None else fields.max_backoff_ms,
    )


def to_overrides(fields: TopicConfigFields, before: RetryPolicy) -> TopicOverrides:
    """Return the overrides of these fields; what is left out of the retry policy stays as it was before."""
    return TopicOverrides(
        max_in_flight=fields.max_in_flight,
        max_waiting_messages=fields.max_waiting_messages,
        max_waiting_bytes=fields.max_waiting_bytes,
        retry=None if fields.retry is None else to_retry(fields.retry, before),
        retention_ms=fields.retention_ms,
        retention_bytes=fields.retention_bytes,
        hold_unfinished=fields.hold_unfinished,
        dead_letters=fields.dead_letters,
        expiry_ms=fields.expiry_ms,
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
        messages=_in_flight(group, now_ms) if messages else [],
        retrying=sum(partition.retrying for partition in partitions),
        parked=group.parked,
        readers=[_describe_consumer(each) for each in group.consumers[:READERS_SHOWN]] if messages else [],
        retry=None if group.retry is None else describe_retry(group.retry),
    )


def _describe_consumer(consumer: Consumer) -> ConsumerInfo:
    window = consumer.window
    return ConsumerInfo(
        consumer.owner,
        "stream" if consumer.credit is None else "pull",
        consumer.lease_ms,
        consumer.held,
        None if window is None else window.limit,
        window is not None and window.fixed,
        consumer.parked_ms,
    )


def _describe_progress(progress: Progress) -> GroupPartition:
    return GroupPartition(
        progress.partition.number,
        progress.watermark,
        progress.lag,
        len(progress.leases),
        len(progress.postponed) - progress.retrying,
        oldest_unfinished_ms(progress),
        progress.unreadable,
        progress.retrying,
    )


def oldest_unfinished(progress: Progress) -> int:
    """Return the index of the oldest unfinished message; one that waits for its first delivery time is not counted."""
    return min((lease.index for lease in _delivered(progress)), default=progress.position)


def _delivered(progress: Progress) -> Iterator[Lease]:
    """Yield what was delivered and is not finished: on lease first, then what waits for another attempt."""
    yield from progress.leases.values()
    if progress.retrying:
        yield from (lease for lease in progress.postponed.values() if lease.attempts)


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


def worst_message(group: Group) -> RetryingMessage | None:
    """Return the message that has failed most often; None if none has failed and is tried again."""
    worst: tuple[Progress, Lease] | None = None
    for progress in group.progress:
        for lease in _delivered(progress):
            if lease.last_error and (worst is None or lease.attempts > worst[1].attempts):
                worst = progress, lease
    if worst is None:
        return None
    progress, lease = worst
    errors = lease.last_error.split(" | ")
    known = errors[1:] if len(errors) > 2 else errors  # the first of many may be cut
    is_same = lease.attempts > 1 and len(set(known)) == 1
    return RetryingMessage(progress.partition.number, lease.offset, lease.attempts, errors[-1], is_same)


def _in_flight(group: Group, now_ms: int) -> list[InFlight]:
    found: list[InFlight] = []
    for progress in group.progress:
        for lease in _delivered(progress):
            if len(found) == IN_FLIGHT_SHOWN:
                return found
            found.append(
                InFlight(
                    progress.partition.number,
                    lease.offset,
                    lease.owner,
                    lease.attempts,
                    _state(progress, lease, now_ms),
                    lease.until_ms,
                    lease.last_error,
                )
            )
    return found


def _state(progress: Progress, lease: Lease, now_ms: int) -> Literal["leased", "waiting", "ready"]:
    if lease.offset in progress.leases:
        return "leased"
    return "waiting" if lease.until_ms > now_ms else "ready"
