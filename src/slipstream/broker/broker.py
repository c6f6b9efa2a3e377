"""The broker: commands in, effects out. No I/O, no clock; both are handed in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from msgspec.structs import replace

from slipstream.broker.changes import (
    Change,
    Extended,
    Finished,
    FinishedBatch,
    GroupCreated,
    GroupForgotten,
    GroupMoved,
    GroupPaused,
    GroupRetryChanged,
    TopicChanged,
    TopicCreated,
    TopicDeleted,
    Trimmed,
    encode_change,
)
from slipstream.broker.commits import Commits
from slipstream.broker.config import BrokerConfig
from slipstream.broker.delivery import Dispatcher
from slipstream.broker.effects import Effects, Publications
from slipstream.broker.envelope import LATEST_MS, RetryPolicy
from slipstream.broker.errors import BrokerError, BrokerFull, FailedPrecondition, InvalidArgument, NotFound, Unavailable
from slipstream.broker.expiry import Expiry
from slipstream.broker.group import Consumer, Group, Progress
from slipstream.broker.idempotency import Status
from slipstream.broker.intake import Intake
from slipstream.broker.lease import Lease
from slipstream.broker.name import check_name
from slipstream.broker.once import EffectsOnce
from slipstream.broker.operations import Operations
from slipstream.broker.snapshot import restore_snapshot, take_snapshot
from slipstream.broker.state import LogFactory, State
from slipstream.broker.topic import DEAD_LETTER_PREFIX, Partition, Topic, TopicOverrides
from slipstream.broker.window import WINDOW_MAX, Window
from slipstream.record import LogUnreadable


class HasPlace(Protocol):
    """Something that says where a message stands."""

    @property
    def partition(self) -> int: ...

    @property
    def offset(self) -> int: ...


PlaceT = TypeVar("PlaceT", bound=HasPlace)

EXPIRED_KEYS_AT_ONCE = 50_000
"""Everybody waits meanwhile, some 20 ms."""


class Broker:
    """Topics, groups, leases and retries as a state machine.

    Every command takes the time as its first argument, changes the state at once and leaves in `effects` what the
    outside has to do about it. A command that raises has changed nothing.
    """

    def __init__(self, config: BrokerConfig, open_log: LogFactory) -> None:
        self.config = config
        self.effects = Effects()
        self.state = State(config, open_log)
        self.dispatcher = Dispatcher(self.state, self.effects)
        self.intake = Intake(config, self.state, self.dispatcher)
        self.commits = Commits(
            config, self.state, self.intake, self.effects, self._move, self._group_for, self._consumed
        )
        self.operations = Operations(config, self.state, self.dispatcher)
        self.effects_once = EffectsOnce(config, self.state, self.effects)
        self.begin_once = self.effects_once.begin
        self.settle_once = self.effects_once.settle
        self.expiry = Expiry(config, self.state)
        self.produce = self.intake.produce
        self.produce_batch = self.intake.produce_batch
        self.acked_total = 0
        self.nacked_total = 0

    # Topics

    def create_topic(
        self, now_ms: int, name: str, partitions: int = 1, overrides: TopicOverrides | None = None
    ) -> Topic:
        """Ruling 9: creating a topic that exists changes nothing."""
        topic = self.state.topics.get(name)
        if topic is not None:
            return topic
        check_name("topic", name)
        source = self.state.topics.get(name.removeprefix(DEAD_LETTER_PREFIX))
        if source is not None:
            # Ruling 6: the dead letters have as many partitions as their topic, whoever creates them.
            partitions = len(source.partitions)
        if not 1 <= partitions <= self.config.partitions_max:
            raise InvalidArgument(f"partitions must be between 1 and {self.config.partitions_max}")
        if len(self.state.topics) >= self.config.topics_max:
            raise BrokerFull("max_topics", len(self.state.topics), "topics")
        change = TopicCreated(self.state.next_topic_id(), name, partitions, overrides or TopicOverrides(), now_ms)
        self.effects.changes.append(encode_change(change))
        topic = self.state.topic_created(change)
        self._grow_graveyard(topic)  # one of its name may have been deleted, and left its dead letters
        return topic

    def topic(self, name: str) -> Topic:
        return self.state.topic(name)

    def change_topic(self, now_ms: int, name: str, overrides: TopicOverrides, partitions: int | None = None) -> Topic:
        """Sets what holds for a topic from now on, and may give it more partitions."""
        topic = self.topic(name)
        count = len(topic.partitions)
        if partitions is not None and partitions != count:
            if topic.is_dead_letter:
                raise InvalidArgument(f"{name} has as many partitions as the topic it belongs to")
            if not count < partitions <= self.config.partitions_max:
                raise InvalidArgument(
                    f"{name} has {count} partitions: there can be more, up to {self.config.partitions_max}, and never "
                    "fewer, for their messages would be lost"
                )
            count = partitions
        self._change(TopicChanged(topic.id, overrides, count))
        self._grow_graveyard(topic)
        self.dispatcher.dispatch_topic(topic, now_ms)  # more may be in flight than before
        return topic

    def _grow_graveyard(self, topic: Topic) -> None:
        """Ruling 6: as many partitions as the topic has."""
        graveyard = self.state.topics.get(DEAD_LETTER_PREFIX + topic.name)
        if graveyard is not None and len(graveyard.partitions) < len(topic.partitions):
            self._change(TopicChanged(graveyard.id, graveyard.overrides, len(topic.partitions)))

    def _change(self, change: TopicChanged) -> None:
        self.effects.changes.append(encode_change(change))
        self.state.topic_changed(change)

    def delete_topic(self, name: str) -> Topic:
        """Its messages and groups are gone; its dead letters, a topic of their own, stay."""
        topic = self.topic(name)
        for group in topic.groups.values():
            self._end_consumers(group)
        change = TopicDeleted(topic.id)
        self.effects.changes.append(encode_change(change))
        self.state.topic_deleted(change)
        return topic

    # Produce

    def committed(self, publications: Publications, now_ms: int) -> None:
        """These publications are safe in the journal: show them to the groups."""
        for operation in publications.operations:
            operation.status = Status.COMMITTED
        self.dispatcher.show(publications.ends, now_ms)

    # Consume

    def attach(
        self,
        now_ms: int,
        name: str,
        group_name: str,
        owner: str,
        lease_ms: int = 0,
        credit: int | None = None,
        sink: object = None,
        window_bytes: int = 0,
        prefetch: int = 0,
        retry: RetryPolicy | None = None,
    ) -> Consumer:
        """Start to read for a group, which is created if it is new and then starts at the oldest message.

        With `credit` the consumer is a pull of so many messages, without it a stream. A stream holds `prefetch`
        messages at a time, or as many as its acks show it can settle (ADR 40). `retry` holds for what it gets.
        """
        topic = self.topic(name)
        if not 0 <= prefetch <= WINDOW_MAX:
            raise InvalidArgument(f"prefetch must be between 0 and {WINDOW_MAX}; 0 lets the broker measure it")
        check_name("owner", owner)
        if lease_ms < 0:
            raise InvalidArgument("lease_ms must not be negative")
        if lease_ms > self.config.lease_ms_max:
            raise InvalidArgument(f"lease_ms must be at most {self.config.lease_ms_max} (lease_ms_max)")
        group = topic.groups.get(group_name)
        if group is None:
            group = self._create_group(topic, group_name)
            self._lower_floors(topic)
        self._used(group, now_ms)
        lease_ms = lease_ms or self.config.lease_ms
        window = None
        if credit is not None:
            credit = min(credit, group.pull_limits.get(owner, credit))
        elif prefetch or self.config.pace_streams:
            window = Window(prefetch)
        window_bytes = window_bytes or self.config.stream_window_bytes
        consumer = Consumer(group, owner, lease_ms, credit, sink, window_bytes, window, retry)
        group.consumers.append(consumer)
        self.dispatch(group, now_ms)
        return consumer

    def detach(self, now_ms: int, consumer: Consumer) -> None:
        """Stop delivering to a consumer; what it holds stays leased to its owner (ruling 4)."""
        group = consumer.group
        consumer.open = consumer.attached = False
        group.last_seen_ms = now_ms
        if consumer in group.consumers:
            group.consumers.remove(consumer)
            group.parked -= consumer.parked_ms is not None

    def dispatch(self, group: Group, now_ms: int) -> None:
        """Deliver what is due to this group, after a consumer became ready."""
        self.dispatcher.serve(group, now_ms)

    def sent(self, now_ms: int, consumer: Consumer) -> None:
        """What was handed to the consumer is on its way: there is room for more, if it is still open."""
        held_back = consumer.unsent_bytes >= consumer.window_bytes
        consumer.unsent_bytes = 0
        if held_back and consumer.ready:
            self.dispatch(consumer.group, now_ms)

    def _used(self, group: Group, now_ms: int) -> None:
        """It counts again, if it did not for having been away."""
        if now_ms - group.last_seen_ms > self.config.group_absent_ms and not group.consumers:
            self._lower_floors(group.topic)
        group.last_seen_ms = now_ms

    def _lower_floors(self, topic: Topic) -> None:
        """Some group may be further back than all that counted so far."""
        for partition in topic.partitions:
            partition.floor_count = partition.floor_bytes = 0

    def _end_consumers(self, group: Group) -> None:
        for consumer in group.consumers:
            consumer.open = consumer.attached = False
            self.effects.ended.append(consumer)
        group.consumers.clear()
        group.parked = 0

    def _create_group(self, topic: Topic, name: str) -> Group:
        check_name("group", name)
        if len(self.state.groups_by_id) >= self.config.groups_max:
            raise BrokerFull("max_groups", len(self.state.groups_by_id), "groups")
        change = GroupCreated(self.state.next_group_id(), topic.id, name)
        self.effects.changes.append(encode_change(change))
        group = self.state.group_created(change)
        for progress in group.progress:
            self.dispatcher.pass_over(progress)
        return group

    # Settle

    def ack(self, now_ms: int, name: str, group_name: str, partition: int, offset: int, owner: str) -> None:
        """Finish the message for this group. Doing so again, or late, is fine (ruling 3)."""
        progress, lease = self._find(name, group_name, partition, offset, owner)
        group = progress.group
        self._used(group, now_ms)
        if lease is None:
            self._check_not_dead(progress, offset)
            self._heard_from(group, owner, now_ms)
            return
        _note_settled(group, lease, now_ms, acked=True)
        progress.finish(offset, -1, 0)
        group.has_progress = True
        self.effects.changes.append(encode_change(Finished(group.id, partition, offset)))
        self.acked_total += 1
        self._go_on(progress, now_ms)

    def ack_batch(
        self, now_ms: int, name: str, group_name: str, places: Sequence[PlaceT], owner: str
    ) -> list[tuple[PlaceT, BrokerError]]:
        """Finish many messages at once; return those that could not be acked, and why."""
        group = self.group(name, group_name)
        acked: dict[Progress, list[int]] = {}
        failed: list[tuple[PlaceT, BrokerError]] = []
        for place in places:
            number, offset = place.partition, place.offset
            progress = group.progress[number] if 0 <= number < len(group.progress) else None
            lease = progress.leases.get(offset) if progress is not None else None
            try:
                if progress is None or lease is None or lease.owner != owner:
                    progress, lease = self._find(name, group_name, number, offset, owner)
                    if lease is None:
                        self._check_not_dead(progress, offset)
                        continue
            except BrokerError as error:
                failed.append((place, error))
                continue
            _note_settled(group, lease, now_ms, acked=True)
            progress.finish(offset, -1, 0)
            acked.setdefault(progress, []).append(offset)
        if len(failed) < len(places):
            self._used(group, now_ms)
        group.has_progress = group.has_progress or bool(acked)
        for progress, offsets in acked.items():
            self.effects.changes.append(encode_change(FinishedBatch(group.id, progress.partition.number, offsets)))
            self.effects.batched += len(offsets) - 1
            self.acked_total += len(offsets)
        for progress in acked:
            self._go_on(progress, now_ms)
        return failed

    def _go_on(self, progress: Progress, now_ms: int) -> None:
        """Deliver what has become possible because a consumer settled a message."""
        group = progress.group
        if progress.position < progress.partition.committed or progress.postponed:
            group.waiting[progress] = None
        if group.waiting:
            self.dispatcher.serve(group, now_ms)

    def _heard_from(self, group: Group, owner: str, now_ms: int, stream: Consumer | None = None) -> None:
        """Serve the stream again if it was parked: it is alive."""
        if group.parked and group.heard_from(owner, stream):
            self.dispatcher.serve(group, now_ms)

    def _check_not_dead(self, progress: Progress, offset: int) -> None:
        """Refuse the ack of a message that was dead-lettered meanwhile: its work may be done once more (ruling 3)."""
        try:
            if not progress.is_dead(offset):
                return
        except LogUnreadable as error:
            raise Unavailable(f"whether the message is dead-lettered cannot be read: {error}") from error
        topic, end, hint = progress.partition.topic, "was already given up", "keeps no dead letters (dead_letters)"
        if topic.config.dead_letters:
            end, hint = "is already dead-lettered", f"has its dead letters in {DEAD_LETTER_PREFIX}{topic.name}"
        raise FailedPrecondition(
            f"offset {offset} of {topic.name}/{progress.partition.number} {end} for group {progress.group.name}: "
            f"its ack came too late; {topic.name} {hint}"
        )

    def nack(
        self,
        now_ms: int,
        name: str,
        group_name: str,
        partition: int,
        offset: int,
        owner: str,
        reason: str = "",
        delay_ms: int | None = None,
        retryable: bool = True,
        traceback: str = "",
        counted: bool = True,
    ) -> None:
        """Schedule the next attempt, by the retry policy unless the consumer gives a delay.

        With `counted` false the message was not attempted: this delivery does not count towards any limit.
        """
        if delay_ms is not None and not 0 <= delay_ms <= LATEST_MS - now_ms:
            raise InvalidArgument("delay_ms must not be negative, nor go beyond the year 9999")
        progress, lease = self._find(name, group_name, partition, offset, owner)
        self._used(progress.group, now_ms)
        if lease is None or lease.released:
            self._heard_from(progress.group, owner, now_ms)
            return
        self.nacked_total += 1
        _note_settled(progress.group, lease, now_ms, acked=False)
        self.dispatcher.fail(
            progress,
            lease,
            reason.strip() or "nack",
            now_ms,
            released=True,
            delay_ms=delay_ms,
            retryable=retryable,
            traceback=traceback,
            counted=counted,
        )
        self._go_on(progress, now_ms)

    def extend(
        self, now_ms: int, name: str, group_name: str, partition: int, offset: int, owner: str, lease_ms: int = 0
    ) -> int:
        """Gives the owner more time, counted from now; returns when the lease now ends."""
        if not 0 <= lease_ms <= self.config.lease_ms_max:
            raise InvalidArgument(f"lease_ms must be between 0 and {self.config.lease_ms_max} (lease_ms_max)")
        progress, lease = self._find(name, group_name, partition, offset, owner)
        self._used(progress.group, now_ms)
        if lease is None or lease.released:
            raise FailedPrecondition("the message is no longer leased")
        until_ms = now_ms + (lease_ms or self.config.lease_ms)
        change = Extended(progress.group.id, partition, offset, until_ms)
        self.effects.changes.append(encode_change(change))
        self.state.extended(change)
        self.dispatcher.set_timer(progress, until_ms)
        if lease.consumer is not None:
            lease.consumer.last_sign_ms = now_ms
            lease.sequence = 0  # the consumer is at it: its time no longer depends on the messages before it
        self._heard_from(progress.group, owner, now_ms, lease.consumer)
        return until_ms

    def _find(self, name: str, group_name: str, number: int, offset: int, owner: str) -> tuple[Progress, Lease | None]:
        """The lease `owner` holds, or None where the message is already done; ruling 3 for everything else."""
        topic = self.state.topics.get(name)
        group = topic.groups.get(group_name) if topic is not None else None
        if group is not None and 0 <= number < len(group.progress):
            lease = group.progress[number].leases.get(offset)
            if lease is not None and lease.owner == owner:
                return group.progress[number], lease  # as it mostly is, and then nothing further need be asked
        topic = self.topic(name)
        if not 0 <= number < len(topic.partitions):
            raise InvalidArgument(f"partition out of range: {name} has partitions 0 to {len(topic.partitions) - 1}")
        if not 0 <= offset < topic.next_offset:
            raise InvalidArgument(f"offset out of range: {name} has offsets 0 to {topic.next_offset - 1}")
        group = self.group(name, group_name)
        progress = group.progress[number]
        lease = progress.find(offset)
        if lease is not None:
            if lease.owner != owner:
                group.heard_from(owner)  # it has been too slow, but it is alive
                raise FailedPrecondition("not owner")
            return progress, lease
        if offset in progress.postponed or (offset > progress.cursor and offset not in progress.finished_ahead):
            raise InvalidArgument(f"offset {offset} of {name}/{number} was never delivered to group {group_name!r}")
        try:
            elsewhere = len(topic.partitions) > 1 and not self._is_in(progress.partition, offset)
        except LogUnreadable as error:
            raise Unavailable(f"whether the message is in this partition cannot be read: {error}") from error
        if elsewhere:
            raise InvalidArgument(f"offset {offset} of {name} is not in partition {number}")
        return progress, None

    def _is_in(self, partition: Partition, offset: int) -> bool:
        """Whether the partition has the offset, as far as anyone can still tell: what retention removed counts."""
        if partition.log.index_of(offset) is not None:
            return True
        if partition.first_index == 0:
            return False
        return partition.first_index == partition.count or offset < partition.log.read(partition.first_index).offset

    # Groups

    def group(self, name: str, group_name: str) -> Group:
        group = self.topic(name).groups.get(group_name)
        if group is None:
            raise NotFound(f"{name} has no group {group_name!r}: its first fetch or stream makes it")
        return group

    def seek(
        self,
        now_ms: int,
        name: str,
        group_name: str,
        find: Callable[[Partition], int],
        partition: int | None = None,
    ) -> Group:
        """Sends a group, which is created if it is new, to the index that `find` names in each partition, or in one.

        What it held on lease is let go: who still works on it is told so when it is through.
        """
        topic = self.topic(name)
        if partition is not None and not 0 <= partition < len(topic.partitions):
            raise NotFound(f"partition out of range: {name} has partitions 0 to {len(topic.partitions) - 1}")
        chosen = topic.partitions if partition is None else [topic.partitions[partition]]
        try:
            moves = [self._move(each, find(each)) for each in chosen]
        except LogUnreadable as error:
            raise Unavailable(f"the place cannot be found: {error}") from error
        group = self._group_for(topic, group_name)
        group.last_seen_ms = now_ms
        for move in moves:
            change = replace(move, group_id=group.id)
            self.effects.changes.append(encode_change(change))
            self.state.group_moved(change)
            group.waiting[group.progress[move.partition]] = None
        for consumer in group.consumers:
            group.heard_from(consumer.owner)  # what they let run out is not held against them any more
        self._lower_floors(topic)
        self._consumed(group, now_ms)
        return group

    def _move(self, partition: Partition, index: int) -> GroupMoved:
        index = max(partition.first_index, min(index, partition.committed))
        log = partition.log
        cursor = log.offset_before(index) if index > partition.first_index else partition.first_offset - 1
        return GroupMoved(0, partition.number, index, cursor, log.bytes_before(index))

    def _group_for(self, topic: Topic, name: str) -> Group:
        return topic.groups.get(name) or self._create_group(topic, name)

    def _consumed(self, group: Group, now_ms: int) -> None:
        """Deliver from the place that the group was moved to."""
        self._used(group, now_ms)
        for progress in group.progress:
            self.dispatcher.pass_over(progress)
        group.waiting.update(dict.fromkeys(group.progress))
        self.dispatch(group, now_ms)

    def pause(self, now_ms: int, name: str, group_name: str, *, paused: bool) -> Group:
        """Stops or resumes deliveries to a group. A pause outlives a restart."""
        group = self.group(name, group_name)
        self._used(group, now_ms)
        if group.paused != paused:
            change = GroupPaused(group.id, paused)
            self.effects.changes.append(encode_change(change))
            self.state.group_paused(change)
            self.dispatch(group, now_ms)
        return group

    def set_group_retry(self, now_ms: int, name: str, group_name: str, retry: RetryPolicy | None) -> Group:
        """Set the retry policy of a group, or with None leave it to the topic's. The group is created if it is new."""
        group = self._group_for(self.topic(name), group_name)
        self._used(group, now_ms)
        if group.retry != retry:
            change = GroupRetryChanged(group.id, retry)
            self.effects.changes.append(encode_change(change))
            self.state.group_retry_changed(change)
        return group

    def forget_group(self, name: str, group_name: str) -> None:
        """The group holds back neither producers nor retention any more; of that name, a new one starts afresh."""
        group = self.group(name, group_name)
        self._end_consumers(group)
        change = GroupForgotten(group.id)
        self.effects.changes.append(encode_change(change))
        self.state.group_forgotten(change)

    # Time, retention, restart

    def next_due_ms(self) -> int | None:
        return self.dispatcher.next_due_ms()

    def tick(self, now_ms: int) -> None:
        """Time has passed: leases run out, retries and deadlines come due."""
        self.dispatcher.tick(now_ms)

    def forget_expired(self, now_ms: int) -> None:
        """What is asked for forgets what has expired; this is for when nobody asks."""
        self.commits.parts.expire(now_ms)
        for registry in (self.state.produced, self.state.batches, self.state.once):
            registry.forget_expired(now_ms, EXPIRED_KEYS_AT_ONCE)

    def trim(self, now_ms: int, partition: Partition, first_index: int, first_bytes: int, first_offset: int = 0) -> int:
        """Retention gives up the records below `first_index`; returns how many of them some group had not finished.

        The records may be removed once the change is in the journal.
        """
        assert partition.first_index < first_index <= partition.committed, "retention only moves forward"
        change = Trimmed(partition.topic.id, partition.number, first_index, first_bytes, first_offset)
        self.effects.changes.append(encode_change(change))
        lost = self.state.trimmed(change)
        for group in partition.topic.groups.values():
            progress = group.progress[partition.number]
            progress.unreadable = ""  # what could not be read may be gone; if not, it is found again
            self.dispatcher.restart_timer(progress, now_ms)
            self.dispatcher.dispatch(progress, now_ms)
        return lost

    def unfinished_from(self, partition: Partition) -> int:
        """The lowest index that some group has not finished, or the end."""
        lowest = partition.committed
        for group in partition.topic.groups.values():
            lowest = min(lowest, group.progress[partition.number].oldest_unfinished)
        return lowest

    def snapshot(self) -> bytes:
        return take_snapshot(self.state)

    def restore(self, snapshot: bytes) -> None:
        restore_snapshot(self.state, snapshot)

    def replay(self, changes: list[Change]) -> None:
        """Applies what the journal holds after the snapshot."""
        self.state.replay(changes)

    def resume(self, now_ms: int) -> None:
        """After restore and replay: set the clocks going again."""
        self.dispatcher.evidence.recount()
        self.expiry.resumed_ms = now_ms
        for group in self.state.groups_by_id.values():
            # Its consumers get the time to come back. For its expiry only what was known before counts.
            group.resume(now_ms)
            for progress in group.progress:
                self.dispatcher.pass_over(progress)
                group.waiting[progress] = None
                self.dispatcher.restart_timer(progress, now_ms)


def _note_settled(group: Group, lease: Lease, now_ms: int, *, acked: bool) -> None:
    """Let the consumer of a message learn from its settlement how much it can hold."""
    consumer = lease.consumer
    if group.parked:
        group.heard_from(lease.owner, consumer)
    if consumer is None:
        return
    consumer.last_sign_ms = now_ms
    consumer.settled_to = max(consumer.settled_to, lease.sequence)
    window = consumer.window
    if window is not None:
        window.note_settled(lease.settled_before, now_ms - lease.delivered_ms, consumer.lease_ms)
    elif acked and consumer.credit is not None:
        consumer.acked += 1
        if consumer.acked == consumer.delivered and consumer.group.pull_limits:
            consumer.group.pull_finished(consumer)
