"""The broker: commands in, effects out. No I/O, no clock; both are handed in."""

from __future__ import annotations

import re

import msgspec

from slipstream.broker.changes import (
    Change,
    Extended,
    Finished,
    GroupCreated,
    OnceBegan,
    OnceSettled,
    TopicCreated,
    Trimmed,
    encode_change,
)
from slipstream.broker.config import BrokerConfig
from slipstream.broker.delivery import Dispatcher
from slipstream.broker.effects import Effects, Publications
from slipstream.broker.envelope import Envelope, Routing, RoutingDecision, encode_meta
from slipstream.broker.errors import FailedPrecondition, InvalidArgument, Overloaded
from slipstream.broker.group import Consumer, Group, Lease, LeaseState, Progress
from slipstream.broker.idempotency import Operation, Status, short
from slipstream.broker.snapshot import restore_snapshot, take_snapshot
from slipstream.broker.state import LogFactory, OnceKey, State
from slipstream.broker.topic import DEAD_LETTER_PREFIX, Partition, Topic, TopicConfig, TopicOverrides
from slipstream.record import Record

_NAME = re.compile(r"[A-Za-z0-9._:-]{1,200}\Z")


class Placement(msgspec.Struct, frozen=True, gc=False):
    """Where a message went."""

    topic: str
    partition: int
    offset: int
    deduplicated: bool = False
    """The idempotency key was known: this is the place of the message that came first."""


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
        self.produced_total = 0
        self.acked_total = 0
        self.nacked_total = 0
        self.deduplicated_total = 0
        self.router_misses_total = 0
        """Router decisions that named a topic or partition that is not there."""
        self.rejected: dict[str, int] = {"partition_buffer_full": 0, "partition_buffer_bytes_full": 0}

    # Topics

    def create_topic(
        self, now_ms: int, name: str, partitions: int = 1, overrides: TopicOverrides | None = None
    ) -> Topic:
        """Ruling 9: creating a topic that exists changes nothing."""
        topic = self.state.topics.get(name)
        if topic is not None:
            return topic
        _check_name("topic", name)
        source = self.state.topics.get(name.removeprefix(DEAD_LETTER_PREFIX))
        if source is not None:
            # Ruling 6: the dead letters have as many partitions as their topic, whoever creates them.
            partitions = len(source.partitions)
        if not 1 <= partitions <= self.config.partitions_max:
            raise InvalidArgument(f"partitions must be between 1 and {self.config.partitions_max}")
        if len(self.state.topics) >= self.config.topics_max:
            raise InvalidArgument(f"this broker already has its {self.config.topics_max} topics (topics_max)")
        change = TopicCreated(self.state.next_topic_id(), name, partitions, overrides or TopicOverrides(), now_ms)
        self.effects.changes.append(encode_change(change))
        return self.state.topic_created(change)

    def topic(self, name: str) -> Topic:
        topic = self.state.topics.get(name)
        if topic is None:
            raise InvalidArgument(f"topic does not exist (create it first): {name}")
        return topic

    # Produce

    def produce(
        self,
        now_ms: int,
        name: str,
        key: bytes,
        value: bytes,
        envelope: Envelope | None = None,
        decision: RoutingDecision | None = None,
        attributes: dict[str, str] | None = None,
    ) -> Placement:
        """Stores a message, or finds that it was stored before. It becomes visible with `committed`."""
        routing = None
        if decision is not None and self._is_usable(name, envelope, decision):
            routing = Routing(decision.label, decision.meta or {})
            envelope = self._apply_decision(envelope, decision)
        operation = deadline_ms = None
        size = len(key) + len(value)
        if envelope is None:
            topic = self.state.topics.get(name) or self.topic(name)
            partition = topic.partition_for(key)
        else:
            topic, partition = self._place(name, key, envelope)
            deadline_ms = envelope.deadline_ms
            if deadline_ms is not None and deadline_ms <= now_ms:
                raise InvalidArgument("message deadline exceeded")
        if topic.is_dead_letter:
            raise InvalidArgument(f"{DEAD_LETTER_PREFIX}* topics are written by the broker only")
        meta = encode_meta(envelope, routing, attributes)  # before anything changes: it may not be encodable
        if envelope is not None and envelope.idempotency_key:
            identity = (short(envelope.tenant_id), topic.id, short(envelope.idempotency_key))
            known = self.state.produced.find(identity, now_ms)
            if known is not None and known.status is not Status.FAILED:
                return self._duplicate(topic, known)
            self._check_room(topic, partition, size, now_ms)
            operation = self.state.produced.put(identity, Status.PENDING, now_ms)
            operation.partition, operation.offset = partition.number, topic.next_offset
        elif (
            partition.count - partition.floor_count >= topic.config.max_waiting_messages
            or partition.bytes_total - partition.floor_bytes + size >= topic.config.max_waiting_bytes
        ):
            self._check_room(topic, partition, size, now_ms)
        offset = topic.next_offset
        self.dispatcher.append(partition, Record(offset, now_ms, key, value, meta), size, operation, deadline_ms)
        self.produced_total += 1
        return Placement(topic.name, partition.number, offset)

    def committed(self, publications: Publications, now_ms: int) -> None:
        """These publications are safe in the journal: show them to the groups."""
        for operation in publications.operations:
            operation.status = Status.COMMITTED
        for partition, end in publications.ends.items():
            partition.committed = end
            for group in partition.topic.groups.values():
                self.dispatcher.dispatch(group.progress[partition.number], now_ms)

    def _is_usable(self, name: str, envelope: Envelope | None, decision: RoutingDecision) -> bool:
        """A router that points at nothing has failed: the message goes its normal way (ruling 13)."""
        target = decision.target_topic or (envelope.target_topic if envelope is not None else "") or name
        topic = self.state.topics.get(target)
        override = decision.partition_override
        if (topic is None and not decision.target_topic and override is None) or (
            topic is not None
            and not topic.is_dead_letter
            and (override is None or 0 <= override < len(topic.partitions))
        ):
            return True
        self.router_misses_total += 1
        return False

    def _apply_decision(self, envelope: Envelope | None, decision: RoutingDecision) -> Envelope | None:
        """Ruling 13: what the router sets wins, and shows in the envelope as in DriftQ."""
        overrides: dict[str, object] = {}
        if decision.target_topic:
            overrides["target_topic"] = decision.target_topic
        if decision.partition_override is not None:
            overrides["partition_override"] = decision.partition_override
        return msgspec.structs.replace(envelope or Envelope(), **overrides) if overrides else envelope

    def _place(self, name: str, key: bytes, envelope: Envelope) -> tuple[Topic, Partition]:
        topic = self.topic(envelope.target_topic or name)
        override = envelope.partition_override
        if override is None:
            return topic, topic.partition_for(key)
        if not 0 <= override < len(topic.partitions):
            raise InvalidArgument(
                f"partition_override out of range: {topic.name} has partitions 0 to {len(topic.partitions) - 1}"
            )
        return topic, topic.partitions[override]

    def _duplicate(self, topic: Topic, known: Operation) -> Placement:
        if known.status is Status.PENDING:
            raise FailedPrecondition("a message with this idempotency key is being stored; try again later")
        self.deduplicated_total += 1
        return Placement(topic.name, known.partition, known.offset, deduplicated=True)

    def _check_room(self, topic: Topic, partition: Partition, size: int, now_ms: int) -> None:
        """Ruling 10. The floor only ever rises, so the groups are asked again only when it looks too low."""
        full, bytes_full = self._is_full(topic.config, partition, size)
        if not full and not bytes_full:
            return
        self._raise_floor(topic, partition, now_ms)
        full, bytes_full = self._is_full(topic.config, partition, size)
        if not full and not bytes_full:
            return
        waiting = partition.count - partition.floor_count
        waiting_bytes = partition.bytes_total - partition.floor_bytes
        self.rejected["partition_buffer_full" if full else "partition_buffer_bytes_full"] += 1
        raise Overloaded(
            f"{topic.name}/{partition.number} is full: {waiting} messages ({waiting_bytes} bytes) wait for the "
            "slowest group; retry later",
            self.config.overload_retry_after_ms,
        )

    @staticmethod
    def _is_full(config: TopicConfig, partition: Partition, size: int) -> tuple[bool, bool]:
        """Whether one more message of this size is too many, or too many bytes."""
        waiting = partition.count - partition.floor_count
        waiting_bytes = partition.bytes_total - partition.floor_bytes + size
        return 0 < config.max_waiting_messages <= waiting, 0 < config.max_waiting_bytes <= waiting_bytes

    def _raise_floor(self, topic: Topic, partition: Partition, now_ms: int) -> None:
        floor: tuple[int, int] | None = None
        for group in topic.groups.values():
            if not group.consumers and now_ms - group.last_seen_ms > self.config.group_absent_ms:
                continue
            progress = group.progress[partition.number]
            done = (progress.done, progress.done_bytes)
            floor = done if floor is None else (min(floor[0], done[0]), min(floor[1], done[1]))
        if floor is None:
            nobody = (partition.count, partition.bytes_total)
            counted = (partition.first_index, partition.first_bytes)
            floor = counted if self.config.backpressure_without_groups else nobody
        partition.floor_count, partition.floor_bytes = floor

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
    ) -> Consumer:
        """Somebody starts to read for a group, which is created if it is new and then starts at the oldest message."""
        topic = self.topic(name)
        _check_name("owner", owner)
        if lease_ms < 0:
            raise InvalidArgument("lease_ms must not be negative")
        if lease_ms > self.config.lease_ms_max:
            raise InvalidArgument(f"lease_ms must be at most {self.config.lease_ms_max} (lease_ms_max)")
        group = topic.groups.get(group_name) or self._create_group(topic, group_name)
        group.last_seen_ms = now_ms
        for partition in topic.partitions:
            # This group counts (again), and may be further back than all the others.
            partition.floor_count = partition.floor_bytes = 0
        lease_ms = lease_ms or self.config.lease_ms
        consumer = Consumer(group, owner, lease_ms, credit, sink, self.config.stream_window_bytes)
        group.consumers.append(consumer)
        self.dispatch(group, now_ms)
        return consumer

    def detach(self, now_ms: int, consumer: Consumer) -> None:
        """It stops reading; what it holds stays leased to its owner (ruling 4)."""
        group = consumer.group
        consumer.open = False
        group.last_seen_ms = now_ms
        if consumer in group.consumers:
            group.consumers.remove(consumer)

    def dispatch(self, group: Group, now_ms: int) -> None:
        """Hands out what is due to this group, after a consumer became ready; the partitions take turns."""
        if not group.can_take():
            return
        count = len(group.progress)
        for number in range(group.first, group.first + count):
            delivered = self.dispatcher.delivered_total
            self.dispatcher.dispatch(group.progress[number % count], now_ms)
            if self.dispatcher.delivered_total != delivered and not group.can_take():
                group.first = (number + 1) % count
                return

    def sent(self, now_ms: int, consumer: Consumer) -> None:
        """What was handed to the consumer is on its way: there is room for more, if it is still open."""
        held_back = consumer.unsent_bytes >= consumer.window_bytes
        consumer.unsent_bytes = 0
        if held_back and consumer.ready:
            self.dispatch(consumer.group, now_ms)

    def _create_group(self, topic: Topic, name: str) -> Group:
        _check_name("group", name)
        if len(self.state.groups_by_id) >= self.config.groups_max:
            raise InvalidArgument(f"this broker already has its {self.config.groups_max} groups (groups_max)")
        change = GroupCreated(self.state.next_group_id(), topic.id, name)
        self.effects.changes.append(encode_change(change))
        return self.state.group_created(change)

    # Settle

    def ack(self, now_ms: int, name: str, group_name: str, partition: int, offset: int, owner: str) -> None:
        """The message is done for this group. Saying so again, or late, is fine (ruling 3)."""
        progress, lease = self._find(name, group_name, partition, offset, owner)
        progress.group.last_seen_ms = now_ms
        if lease is None:
            return
        change = Finished(progress.group.id, partition, offset)
        progress.finish(offset, -1, 0)
        self.effects.changes.append(encode_change(change))
        self.acked_total += 1
        if progress.position < progress.partition.committed or progress.ready:
            self.dispatcher.dispatch(progress, now_ms)

    def nack(
        self, now_ms: int, name: str, group_name: str, partition: int, offset: int, owner: str, reason: str = ""
    ) -> None:
        """The attempt failed; the retry policy says when the next one is due."""
        progress, lease = self._find(name, group_name, partition, offset, owner)
        progress.group.last_seen_ms = now_ms
        if lease is None or lease.released:
            return
        self.nacked_total += 1
        self.dispatcher.fail(progress, lease, reason.strip() or "nack", now_ms, released=True)
        self.dispatcher.dispatch(progress, now_ms)

    def extend(
        self, now_ms: int, name: str, group_name: str, partition: int, offset: int, owner: str, lease_ms: int = 0
    ) -> int:
        """Gives the owner more time, counted from now; returns when the lease now ends."""
        if not 0 <= lease_ms <= self.config.lease_ms_max:
            raise InvalidArgument(f"lease_ms must be between 0 and {self.config.lease_ms_max} (lease_ms_max)")
        progress, lease = self._find(name, group_name, partition, offset, owner)
        progress.group.last_seen_ms = now_ms
        if lease is None or lease.released:
            raise FailedPrecondition("the message is no longer leased")
        until_ms = now_ms + (lease_ms or self.config.lease_ms)
        change = Extended(progress.group.id, partition, offset, until_ms)
        self.effects.changes.append(encode_change(change))
        self.state.extended(change)
        self.dispatcher.set_timer(progress, until_ms)
        return until_ms

    def _find(self, name: str, group_name: str, number: int, offset: int, owner: str) -> tuple[Progress, Lease | None]:
        """The lease `owner` holds, or None where the message is already done; ruling 3 for everything else."""
        topic = self.topic(name)
        if not 0 <= number < len(topic.partitions):
            raise InvalidArgument(f"partition out of range: {name} has partitions 0 to {len(topic.partitions) - 1}")
        if not 0 <= offset < topic.next_offset:
            raise InvalidArgument(f"offset out of range: {name} has offsets 0 to {topic.next_offset - 1}")
        group = topic.groups.get(group_name)
        if group is None:
            raise InvalidArgument(f"group {group_name!r} has never read {name}")
        progress = group.progress[number]
        lease = progress.leases.get(offset)
        if lease is not None:
            if lease.owner != owner:
                raise FailedPrecondition("not owner")
            return progress, lease
        if offset > progress.cursor and offset not in progress.finished_ahead:
            raise InvalidArgument(f"offset {offset} of {name}/{number} was never delivered to group {group_name!r}")
        if len(topic.partitions) > 1 and not self._is_in(progress.partition, offset):
            raise InvalidArgument(f"offset {offset} of {name} is not in partition {number}")
        return progress, None

    def _is_in(self, partition: Partition, offset: int) -> bool:
        """Whether the partition has the offset, as far as anyone can still tell: what retention removed counts."""
        if partition.log.index_of(offset) is not None:
            return True
        if partition.first_index == 0:
            return False
        return partition.first_index == partition.count or offset < partition.log.read(partition.first_index).offset

    # Consumer idempotency (ruling 8)

    def begin_once(
        self, now_ms: int, name: str, group_name: str, key: str, owner: str, lease_ms: int = 0, tenant: str = ""
    ) -> bool:
        """True if the worker should do the effect; False if it was done before and must be skipped."""
        identity = self._once_key(name, group_name, key, tenant)
        _check_name("owner", owner)
        if not 0 <= lease_ms <= self.config.lease_ms_max:
            raise InvalidArgument(f"lease_ms must be between 0 and {self.config.lease_ms_max} (lease_ms_max)")
        lease_ms = lease_ms or self.config.lease_ms
        if not self.state.once.begin(identity, now_ms, owner, lease_ms):
            return False
        change = OnceBegan(identity[1], identity[0], identity[2], owner, now_ms + lease_ms)
        self.effects.changes.append(encode_change(change))
        return True

    def settle_once(
        self, now_ms: int, name: str, group_name: str, key: str, owner: str, error: str | None = None, tenant: str = ""
    ) -> None:
        """The effect is done (`error` None) and is never to be repeated, or it failed and may begin again."""
        identity = self._once_key(name, group_name, key, tenant)
        self.state.once.settle(identity, now_ms, owner)
        error_text = (error or "")[: self.config.last_error_chars_max]
        change = OnceSettled(identity[1], identity[0], identity[2], error is None, error_text, now_ms)
        self.effects.changes.append(encode_change(change))
        self.state.once_settled(change)

    def _once_key(self, name: str, group_name: str, key: str, tenant: str) -> OnceKey:
        topic = self.topic(name)
        if not key:
            raise InvalidArgument("an idempotency key is required")
        group = topic.groups.get(group_name)
        if group is None:
            raise InvalidArgument(f"group {group_name!r} has never read {name}")
        return short(tenant), group.id, short(key)

    # Time, retention, restart

    def next_due_ms(self) -> int | None:
        return self.dispatcher.next_due_ms()

    def tick(self, now_ms: int) -> None:
        """Time has passed: leases run out, retries and deadlines come due."""
        self.dispatcher.tick(now_ms)

    def trim(self, now_ms: int, partition: Partition, first_index: int, first_bytes: int, first_offset: int = 0) -> int:
        """Retention gives up the records below `first_index`; returns how many of them some group had not finished.

        The records may be removed once the change is in the journal.
        """
        assert partition.first_index < first_index <= partition.committed, "retention only moves forward"
        change = Trimmed(partition.topic.id, partition.number, first_index, first_bytes)
        self.effects.changes.append(encode_change(change))
        lost = self.state.trimmed(change)
        for group in partition.topic.groups.values():
            progress = group.progress[partition.number]
            progress.unreadable = ""  # what could not be read may be gone; if not, it is found again
            self.dispatcher.restart_timer(progress)
            self.dispatcher.dispatch(progress, now_ms)
        return lost

    def unfinished_from(self, partition: Partition) -> int:
        """The lowest index that some group has not finished, or the end."""
        lowest = partition.committed
        for group in partition.topic.groups.values():
            progress = group.progress[partition.number]
            first = next(iter(progress.leases.values())).index if progress.leases else progress.position
            lowest = min(lowest, first)
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
        for group in self.state.groups_by_id.values():
            # When it was last used is not in the journal; its consumers get the time to come back.
            group.last_seen_ms = now_ms
            for progress in group.progress:
                for lease in progress.leases.values():
                    if lease.state is LeaseState.WAITING and lease.until_ms <= now_ms:
                        progress.make_ready(lease)
                self.dispatcher.restart_timer(progress)


def _check_name(what: str, name: str) -> None:
    """Ruling 15."""
    if not _NAME.match(name):
        raise InvalidArgument(f"{what} must be 1 to 200 characters of A-Z a-z 0-9 . _ : - (got {name[:40]!r})")
