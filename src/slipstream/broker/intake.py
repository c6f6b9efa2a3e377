"""What comes in: where a message belongs, whether it was there before, and whether there is room for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import chain
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from slipstream.broker.changes import BatchCommitted, Redriven, encode_change
from slipstream.broker.config import BrokerConfig
from slipstream.broker.delivery import Dispatcher
from slipstream.broker.envelope import (
    LATEST_MS,
    DeadLetter,
    Envelope,
    Meta,
    Routing,
    RoutingDecision,
    decode_meta,
    encode_meta,
)
from slipstream.broker.errors import FailedPrecondition, InProgress, InvalidArgument, NotFound, Overloaded, Unavailable
from slipstream.broker.idempotency import Identity, Operation, Registry, Status, short
from slipstream.broker.message import NewMessage
from slipstream.broker.parts import Part
from slipstream.broker.staged import StagedBatch
from slipstream.broker.state import State
from slipstream.broker.topic import DEAD_LETTER_PREFIX, Partition, Topic, TopicConfig, partition_of
from slipstream.plurals import counted
from slipstream.record import LogUnreadable, Record


class Placement(msgspec.Struct, frozen=True, gc=False):
    """Where a message went."""

    topic: str
    partition: int
    offset: int
    deduplicated: bool = False
    """The idempotency key was known: this is the place of the message that came first."""


_Plan: TypeAlias = tuple[Topic, Partition, bytes, int | None, "Identity | None"]
"""Topic, partition, meta, deadline and idempotency key of a message that may be stored as it is."""


class _Batch(msgspec.Struct, frozen=True, gc=False):
    """Messages for one topic."""

    name: str
    messages: Sequence[NewMessage]
    label: str = ""
    """The start of the text of an error in one of its messages."""


class _Staging:
    """The messages that several batches store together, if nothing is wrong with any of them."""

    __slots__ = ("first", "outcomes", "stages")

    def __init__(self, outcomes: list[str]) -> None:
        self.stages: dict[Topic, StagedBatch] = {}
        self.first: dict[Identity, Placement] = {}
        """The first message with each idempotency key."""
        self.outcomes = outcomes
        """For each decision of a router the reason why it cannot be followed, or "" where it is."""


class Intake:
    """Every message a client sends is stored through here. A command that raises has changed nothing."""

    def __init__(self, config: BrokerConfig, state: State, dispatcher: Dispatcher) -> None:
        self.config = config
        self.state = state
        self.dispatcher = dispatcher
        self.produced_total = 0
        self.deduplicated_total = 0
        self.redriven_total = 0
        self.router_misses_total = 0
        """Router decisions that could not be followed, such as a topic or partition that is not there."""
        self.on_routed: Callable[[str], None] = lambda _: None
        """Called for each message that a router decided on: with the reason why that could not be followed, or ""."""
        self.rejected: dict[str, int] = {"partition_buffer_full": 0, "partition_buffer_bytes_full": 0, "disk_low": 0}

    def produce(
        self,
        now_ms: int,
        name: str,
        key: bytes,
        value: bytes,
        envelope: Envelope | None = None,
        decision: RoutingDecision | None = None,
        attributes: dict[str, str] | None = None,
        deliver_at_ms: int | None = None,
    ) -> Placement:
        """Stores a message, or finds that it was stored before. It becomes visible with `committed`."""
        if envelope is None and decision is None and attributes is None and deliver_at_ms is None:
            # Written out for those that only have a key and a value, which are most: it is a tenth of the whole.
            topic = self.state.topics.get(name) or self._topic(name)
            if topic.is_dead_letter:
                raise InvalidArgument(_BROKER_ONLY)
            partition = topic.partition_for(key)
            meta, deadline_ms, identity, outcome = b"", None, None, None
        else:
            message = NewMessage(key, value, envelope, attributes, deliver_at_ms, decision)
            (topic, partition, meta, deadline_ms, identity), outcome = self._plan(now_ms, name, message)
        operation = None
        if identity is not None:
            known = self._find(self.state.produced, identity, now_ms)
            if known is not None:
                self.deduplicated_total += 1
                if outcome is not None:
                    self._note_outcome(outcome)
                return Placement(topic.name, known.partition, known.offset, deduplicated=True)
        size = len(key) + len(value)
        if (
            partition.count - partition.floor_count >= topic.config.max_waiting_messages
            or partition.bytes_total - partition.floor_bytes + size >= topic.config.max_waiting_bytes
        ):
            if _has_target(decision) and any(self._is_full(topic, partition, 1, size, now_ms)):
                with suppress(InvalidArgument):  # without the router it may not go anywhere: then it has to wait
                    placement = self.produce(now_ms, name, key, value, envelope, None, attributes, deliver_at_ms)
                    self._note_outcome(_full(topic.name, partition.number))
                    return placement
            self._check_room(topic, partition, 1, size, now_ms)
        offset = topic.next_offset
        if identity is not None:
            operation = self._remember(identity, now_ms, partition.number, offset)
        self.dispatcher.append(partition, Record(offset, now_ms, key, value, meta), size, operation, deadline_ms)
        self.produced_total += 1
        if outcome is not None:
            self._note_outcome(outcome)
        return Placement(topic.name, partition.number, offset)

    def produce_batch(
        self, now_ms: int, name: str, messages: Sequence[NewMessage], idempotency_key: str = ""
    ) -> list[Placement]:
        """Store all messages, or raise and store none. The error names the number of the message that is wrong."""
        batch: Identity | None = None
        if idempotency_key:
            batch = ("", self._topic(name).id, short(idempotency_key))
            known = self._find(self.state.batches, batch, now_ms)
            if known is not None:
                return self._same_places(name, messages, known)
        staging, (placements,) = self._stage_all(now_ms, [_Batch(name, messages)])
        first_offset = self._topic(name).next_offset if batch is not None else 0
        self._store_all(now_ms, staging, placements)
        if batch is not None:
            self._commit_batch(now_ms, name, batch, first_offset, messages, placements)
        return placements

    def produce_parts(self, now_ms: int, parts: Sequence[Part]) -> None:
        """Store the messages of several batches together, or raise and store none."""
        batches = [_Batch(part.topic, part.messages, f"part {part.id}: ") for part in parts]
        staging, places = self._stage_all(now_ms, batches)
        self._store_all(now_ms, staging, chain.from_iterable(places))

    def check_writable(self, name: str) -> None:
        """Raises unless clients may store something in the topic."""
        if self._topic(name).is_dead_letter:
            raise InvalidArgument(_BROKER_ONLY)

    def _stage_all(self, now_ms: int, batches: list[_Batch]) -> tuple[_Staging, list[list[Placement]]]:
        """Return what is to be stored, and where each message will be; raise where there is no room. Changes nothing.

        Where a router has chosen a partition that is full, the messages go their normal way (ruling 13).
        """
        missed: list[str] = []
        staging, places = self._stage(now_ms, batches, missed)
        while (rerouted := self._reroute(now_ms, batches, places, staging, missed)) is not None:
            try:
                staging, places = self._stage(now_ms, rerouted, missed)
            except InvalidArgument:
                break  # without the router one of them does not go anywhere: then all have to wait
            batches = rerouted
        for stage in staging.stages.values():
            self._check_room_for_all(stage, now_ms)
        return staging, places

    def _stage(self, now_ms: int, batches: list[_Batch], missed: list[str]) -> tuple[_Staging, list[list[Placement]]]:
        staging = _Staging(missed.copy())
        return staging, [self._stage_batch(now_ms, batch, staging) for batch in batches]

    def _reroute(
        self, now_ms: int, batches: list[_Batch], places: list[list[Placement]], staging: _Staging, missed: list[str]
    ) -> list[_Batch] | None:
        """Return the batches without the router's decisions for partitions that are full; None where there are none."""
        if not any(_has_target(message.decision) for batch in batches for message in batch.messages):
            return None
        full = {
            (topic.name, partition.number)
            for topic, stage in staging.stages.items()
            for partition, records in stage.partitions.items()
            if any(self._is_full(topic, partition, len(records), sum(r.size for r in records), now_ms))
        }
        known = len(missed)
        rerouted = []
        for batch, placed in zip(batches, places, strict=True):
            messages = list(batch.messages)
            for number, (message, place) in enumerate(zip(batch.messages, placed, strict=True)):
                at = place.topic, place.partition
                if _has_target(message.decision) and not place.deduplicated and at in full:
                    messages[number] = replace(message, decision=None)
                    missed.append(_full(*at))
            rerouted.append(_Batch(batch.name, messages, batch.label))
        return rerouted if len(missed) > known else None

    def _store_all(self, now_ms: int, staging: _Staging, placements: Iterable[Placement]) -> None:
        for stage in staging.stages.values():
            self._store(now_ms, stage)
        self.deduplicated_total += sum(placement.deduplicated for placement in placements)
        for outcome in staging.outcomes:
            self._note_outcome(outcome)

    def _stage_batch(self, now_ms: int, batch: _Batch, staging: _Staging) -> list[Placement]:
        """Return where each message will be, and add what is to be stored to `staging`. Changes nothing else."""
        name, messages, stages, first = batch.name, batch.messages, staging.stages, staging.first
        placements: list[Placement] = []
        stage: StagedBatch | None
        plain: StagedBatch | None = None
        partitions: dict[bytes, Partition] = {}
        """By key, of messages that have nothing else: most batches are made of these."""
        try:
            for message in messages:
                key, value, meta = message.key, message.value, b""
                envelope, decision = message.envelope, message.decision
                attributes, deliver_at_ms = message.attributes, message.deliver_at_ms
                if (
                    plain is not None
                    and envelope is None
                    and decision is None
                    and attributes is None
                    and deliver_at_ms is None
                ):
                    stage = plain
                    partition = partitions.get(key)
                    if partition is None:
                        partition = partitions[key] = plain.topic.partition_for(key)
                else:
                    (topic, partition, meta, deadline_ms, identity), outcome = self._plan(now_ms, name, message)
                    if outcome is not None:
                        staging.outcomes.append(outcome)
                    if identity is not None:
                        known = self._stored_before(identity, topic, first, now_ms)
                        if known is not None:
                            placements.append(known)
                            continue
                    stage = stages.get(topic)
                    if stage is None:
                        stage = stages[topic] = StagedBatch(topic)
                    if identity is not None:
                        first[identity] = Placement(topic.name, partition.number, stage.next_offset, deduplicated=True)
                        stage.keys.append((identity, partition.number, stage.next_offset))
                    if deadline_ms is not None:
                        position = len(stage.partitions.get(partition, ()))
                        stage.deadlines.append((deadline_ms, partition, position, stage.next_offset))
                    if envelope is None and decision is None:
                        plain = stage  # nothing can be wrong with the next one that only has a key and a value
                offset = stage.next_offset
                record = Record(offset, now_ms, key, value, meta)
                records = stage.partitions.get(partition)
                if records is None:
                    records = stage.partitions[partition] = []
                records.append(record)
                stage.messages.append((partition.number, record))
                stage.next_offset = offset + 1
                placements.append(Placement(stage.topic.name, partition.number, offset))
        except (InvalidArgument, FailedPrecondition) as error:
            number = len(placements)
            where = "" if len(messages) == 1 else f"message {number} of the batch (nothing was stored): "
            raise type(error)(f"{batch.label}{where}{error.message}") from error
        return placements

    def _stored_before(
        self, identity: Identity, topic: Topic, first: dict[Identity, Placement], now_ms: int
    ) -> Placement | None:
        """In an earlier request, or by an earlier message of this very batch."""
        known = self._find(self.state.produced, identity, now_ms)
        if known is None:
            return first.get(identity)
        return Placement(topic.name, known.partition, known.offset, deduplicated=True)

    def _store(self, now_ms: int, stage: StagedBatch) -> None:
        operations = [self._remember(identity, now_ms, number, offset) for identity, number, offset in stage.keys]
        self.dispatcher.append_batch(stage, operations)
        self.produced_total += len(stage.messages)

    def _remember(self, identity: Identity, now_ms: int, partition: int, offset: int) -> Operation:
        operation = self.state.produced.put(identity, Status.PENDING, now_ms)
        operation.partition, operation.offset = partition, offset
        return operation

    def _find(self, registry: Registry, identity: Identity, now_ms: int) -> Operation | None:
        """What was stored under this key; raises FailedPrecondition while it is being stored (ruling 8)."""
        known = registry.find(identity, now_ms)
        if known is None or known.status is Status.FAILED:
            return None
        if known.status is Status.PENDING:
            raise InProgress("a message with this idempotency key is being stored; try again later")
        return known

    # Batches with a key

    def _commit_batch(
        self,
        now_ms: int,
        name: str,
        batch: Identity,
        first_offset: int,
        messages: Sequence[NewMessage],
        placements: list[Placement],
    ) -> None:
        # The places of most batches follow from their first offset: a million keys must not remember each of them.
        partitions = len(self._topic(name).partitions)
        usual = placements == _places_by_key(name, messages, first_offset, partitions, deduplicated=False)
        topics = self.state.topics
        places = [] if usual else [(topics[p.topic].id, p.partition, p.offset) for p in placements]
        change = BatchCommitted(batch[1], batch[2], now_ms, first_offset, len(placements), places, partitions)
        operation = self.state.batch_committed(change)
        operation.status = Status.PENDING
        effects = self.dispatcher.effects
        effects.changes.append(encode_change(change))
        effects.publications.operations.append(operation)

    def _same_places(self, name: str, messages: Sequence[NewMessage], known: Operation) -> list[Placement]:
        """The answer the batch got the first time."""
        if known.count != len(messages):
            raise FailedPrecondition(
                f"this idempotency key was used for a batch of {known.count} messages; this one has {len(messages)}"
            )
        self.deduplicated_total += len(messages)
        if known.places:
            topics = self.state.topics_by_id
            return [
                Placement(topics[topic_id].name if topic_id in topics else name, partition, offset, deduplicated=True)
                for topic_id, partition, offset in known.places
            ]
        return _places_by_key(name, messages, known.offset, known.partition, deduplicated=True)

    # Where a message belongs

    def _plan(self, now_ms: int, name: str, message: NewMessage) -> tuple[_Plan, str | None]:
        """Find everything that can be wrong with the message itself, before anything changes.

        Returns the outcome of the router's decision too: None without one, "" where it is followed, or the reason.
        """
        if message.decision is None:
            return self._plan_as_it_is(now_ms, name, message), None
        try:
            return self._plan_as_it_is(now_ms, name, message), ""
        except InvalidArgument as error:
            # Ruling 13. If this raises too, the message itself cannot be stored, whatever the router says.
            return self._plan_as_it_is(now_ms, name, replace(message, decision=None)), error.message

    def _note_outcome(self, outcome: str) -> None:
        self.router_misses_total += bool(outcome)
        self.on_routed(outcome)

    def _plan_as_it_is(self, now_ms: int, name: str, message: NewMessage) -> _Plan:
        key, envelope, decision = message.key, message.envelope, message.decision
        attributes, deliver_at_ms = message.attributes, message.deliver_at_ms
        routing = None
        if decision is not None:
            routing = Routing(decision.label, decision.meta or {})
            envelope = self._apply_decision(envelope, decision)
        if envelope is None:
            topic = self.state.topics.get(name) or self._topic(name)
            partition = topic.partition_for(key)
            if topic.is_dead_letter:
                raise InvalidArgument(_BROKER_ONLY)
            if routing is None and attributes is None and deliver_at_ms is None:
                return topic, partition, b"", None, None
        else:
            topic, partition = self._place(name, key, envelope)
            if topic.is_dead_letter:
                raise InvalidArgument(_BROKER_ONLY)
        deadline_ms = envelope.deadline_ms if envelope is not None else None
        if deadline_ms is not None and deadline_ms <= now_ms:
            raise InvalidArgument("message deadline exceeded")
        if deliver_at_ms is not None:
            self._check_delay(now_ms, topic, deliver_at_ms, deadline_ms)
        size = len(key) + len(message.value)
        if decision is not None and 0 < topic.config.max_waiting_bytes <= size:
            raise _never_fits(topic, size)  # it may fit where the message goes without the router
        # May fail too: not everything can be encoded.
        meta = encode_meta(Meta(envelope, routing, attributes, deliver_at_ms))
        identity = None
        if envelope is not None and envelope.idempotency_key:
            identity = (short(envelope.tenant_id), topic.id, short(envelope.idempotency_key))
        return topic, partition, meta, deadline_ms, identity

    def _topic(self, name: str) -> Topic:
        return self.state.topic(name)

    def _apply_decision(self, envelope: Envelope | None, decision: RoutingDecision) -> Envelope | None:
        """Ruling 13: what the router sets wins, and shows in the envelope as in DriftQ."""
        overrides: dict[str, object] = {}
        if decision.target_topic:
            overrides["target_topic"] = decision.target_topic
        if decision.partition_override is not None:
            overrides["partition_override"] = decision.partition_override
        return replace(envelope or Envelope(), **overrides) if overrides else envelope

    def _place(self, name: str, key: bytes, envelope: Envelope) -> tuple[Topic, Partition]:
        topic = self._topic(envelope.target_topic or name)
        override = envelope.partition_override
        if override is None:
            return topic, topic.partition_for(key)
        if not 0 <= override < len(topic.partitions):
            raise InvalidArgument(
                f"partition_override out of range: {topic.name} has partitions 0 to {len(topic.partitions) - 1}"
            )
        return topic, topic.partitions[override]

    def _check_delay(self, now_ms: int, topic: Topic, deliver_at_ms: int, deadline_ms: int | None) -> None:
        if deliver_at_ms > LATEST_MS:
            raise InvalidArgument("the message would be due after the year 9999: deliver it earlier")
        if deadline_ms is not None and deadline_ms <= deliver_at_ms:
            raise InvalidArgument("the message would be past its deadline when it is due: deliver it earlier")
        config = topic.config
        if 0 < config.retention_ms < deliver_at_ms - now_ms and not config.hold_unfinished:
            raise InvalidArgument(
                f"{topic.name} keeps messages for {config.retention_ms} ms, and this one is due later than that: "
                "deliver it earlier, or give the topic a longer retention_ms or hold_unfinished"
            )

    # Whether there is room

    def _check_room_for_all(self, stage: StagedBatch, now_ms: int) -> None:
        topic = stage.topic
        for partition, records in stage.partitions.items():
            count, size = len(records), 0
            for record in records:
                size += len(record.key) + len(record.value)
            stage.sizes[partition] = size
            if 0 < topic.config.max_waiting_messages < count or 0 < topic.config.max_waiting_bytes <= size:
                # To wait would not help: it could never be stored.
                if count == 1:
                    raise _never_fits(topic, size)
                raise InvalidArgument(
                    f"{count} messages ({size} bytes) in one batch are more than may wait in "
                    f"{topic.name}/{partition.number}: send smaller batches"
                )
            self._check_room(topic, partition, count, size, now_ms)

    def _check_room(self, topic: Topic, partition: Partition, count: int, size: int, now_ms: int) -> None:
        """Raise where so many more messages of this size together are too many (ruling 10)."""
        full, bytes_full = self._is_full(topic, partition, count, size, now_ms)
        if not full and not bytes_full:
            return
        if 0 < topic.config.max_waiting_bytes <= size:
            raise _never_fits(topic, size)
        waiting = partition.count - partition.floor_count
        waiting_bytes = partition.bytes_total - partition.floor_bytes
        self.rejected["partition_buffer_full" if full else "partition_buffer_bytes_full"] += 1
        waiting_text = (
            f"{counted(waiting, 'message')} ({counted(waiting_bytes, 'byte')}) {'waits' if waiting == 1 else 'wait'}"
        )
        raise Overloaded(
            f"{topic.name}/{partition.number} is full: {waiting_text} for the slowest group; retry later",
            self.config.overload_retry_after_ms,
        )

    def _is_full(self, topic: Topic, partition: Partition, count: int, size: int, now_ms: int) -> tuple[bool, bool]:
        """Return whether so many more messages of this size together are too many, or too many bytes.

        The floor only ever rises, so the groups are asked again only when it looks too low.
        """
        found = _looks_full(topic.config, partition, count, size)
        if any(found):
            self._raise_floor(topic, partition, now_ms)
            found = _looks_full(topic.config, partition, count, size)
        return found

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

    # Dead letters

    def redrive(
        self, now_ms: int, dead: Partition, index: int, to: str = "", *, all_groups: bool = False
    ) -> Placement | None:
        """Send a dead letter back to its topic, or to another; None if that was done before.

        In its own topic only the group it failed for gets it, unless it is for `all_groups`; another topic has no such
        group. Raises FailedPrecondition where that group is gone: nothing would ever get the message.

        It keeps its key, envelope and attributes. Its deadline is dropped if it has passed, for it would only die
        again. The producer's idempotency key does not hold it back: that the message was stored once is known.
        """
        if self.state.topics_by_id.get(dead.topic.id) is not dead.topic:
            raise NotFound(f"{dead.topic.name} was deleted meanwhile, and its dead letters with it")
        if dead.redriven is not None and index in dead.redriven:
            return None
        try:
            record = dead.log.read(index)
        except LogUnreadable as error:
            raise Unavailable(f"the dead letter cannot be read: {error}") from error
        meta = decode_meta(record.meta)
        envelope = meta.envelope or Envelope()
        letter = envelope.dlq
        if letter is None:
            raise InvalidArgument(f"{dead.topic.name}/{dead.number}/{record.offset} is no dead letter")
        topic = self._topic(to or letter.original_topic)
        if topic.is_dead_letter:
            raise InvalidArgument("dead letters can be sent to an ordinary topic only")
        stays = topic.name == letter.original_topic and letter.original_partition < len(topic.partitions)
        partition = topic.partitions[letter.original_partition] if stays else topic.partition_for(record.key)
        only_group = group_addressed(letter, topic, all_groups=all_groups)
        if only_group and only_group not in topic.groups:
            raise FailedPrecondition(
                f"{topic.name} has no group {only_group!r} any more, for which {dead.topic.name}/{dead.number}/"
                f"{record.offset} failed: redrive it to all groups, or to another topic"
            )
        self._check_room(topic, partition, 1, record.size, now_ms)
        deadline = envelope.deadline
        if envelope.deadline_ms is not None and envelope.deadline_ms <= now_ms:
            deadline = None
        kept = replace(envelope, dlq=None, deadline=deadline)
        origin = f"{dead.topic.name}/{dead.number}/{record.offset}"
        sent = kept if kept != Envelope() else None
        encoded = encode_meta(Meta(sent, meta.routing, meta.attributes, redriven_from=origin, only_group=only_group))
        copy = Record(topic.next_offset, now_ms, record.key, record.value, encoded)
        self.dispatcher.append(partition, copy, record.size, None, kept.deadline_ms)
        if only_group:
            partition.address(partition.count - 1, only_group)
        change = Redriven(dead.topic.id, dead.number, index, record.offset)
        self.dispatcher.effects.changes.append(encode_change(change))
        self.state.redriven(change)
        self.redriven_total += 1
        return Placement(topic.name, partition.number, copy.offset)


def group_addressed(letter: DeadLetter, topic: Topic, *, all_groups: bool) -> str:
    """Return the one group that a dead letter goes to when it is sent to this topic; "" for every group."""
    return "" if all_groups or topic.name != letter.original_topic else letter.group


def _places_by_key(
    name: str, messages: Sequence[NewMessage], first_offset: int, partitions: int, *, deduplicated: bool
) -> list[Placement]:
    """Where a batch goes if nothing but their keys says where: no router, no override, no message known before."""
    return [
        Placement(name, partition_of(message.key, partitions), first_offset + n, deduplicated)
        for n, message in enumerate(messages)
    ]


def _never_fits(topic: Topic, size: int) -> InvalidArgument:
    limit = topic.config.max_waiting_bytes
    return InvalidArgument(
        f"the message never fits: its key and value have {size} bytes, and what waits in a partition of {topic.name} "
        f"must stay below {limit} bytes (max_waiting_bytes); send a smaller message or raise the limit"
    )


_BROKER_ONLY = f"{DEAD_LETTER_PREFIX}* topics are written by the broker only"


def _has_target(decision: RoutingDecision | None) -> bool:
    """Return whether a router has chosen the topic or the partition."""
    return decision is not None and bool(decision.target_topic or decision.partition_override is not None)


def _full(topic: str, partition: int) -> str:
    return f"{topic}/{partition} is full"


def _looks_full(config: TopicConfig, partition: Partition, count: int, size: int) -> tuple[bool, bool]:
    """Return whether so many more messages are too many, or too many bytes, by the floor as it was last measured."""
    waiting = partition.count - partition.floor_count + count - 1
    waiting_bytes = partition.bytes_total - partition.floor_bytes + size
    return 0 < config.max_waiting_messages <= waiting, 0 < config.max_waiting_bytes <= waiting_bytes
