"""The broker against a model simple enough to be seen right: random commands, clock jumps, crashes and restarts."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections import Counter, defaultdict
from typing import Any, NamedTuple, TypeAlias

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from slipstream.broker import (
    Broker,
    BrokerConfig,
    BrokerError,
    Consumer,
    Envelope,
    FailedPrecondition,
    Group,
    InvalidArgument,
    NewMessage,
    Overloaded,
    Partition,
    Placement,
    Progress,
    RetryPolicy,
    Topic,
    TopicConfig,
    TopicOverrides,
    decode_meta,
)
from slipstream.broker.snapshot import _decode as decode_snapshot  # the comparison wants the data, not the bytes
from slipstream.record import Record
from tests.broker.simulator import At, ListLog, Pull, Simulator

PARTITIONS = 2
PARTITIONS_MAX = 4
GROUPS = ("red", "blue")
LEASE_MS = 1_000
WAITING_MAX = 12
DELAYED_MAX = 3
TTL_MS = 600_000

KEYS = st.sampled_from([b"", b"user:1", b"user:2", b"user:3"])
ATTEMPTS = st.sampled_from([0, 0, 1, 3])
DELAYS = st.sampled_from([None, None, 0, 50, 1_000, 30_000])
ONCE_KEYS = st.sampled_from(["", "", "", "once", "twice"])
BATCH_KEYS = st.sampled_from(["", "batch", "other"])
MESSAGES = st.lists(st.tuples(KEYS, ATTEMPTS, DELAYS, ONCE_KEYS), max_size=4)

Place: TypeAlias = tuple[int, int]
"""(partition, offset)"""


class Stored(NamedTuple):
    value: bytes
    size: int
    at_ms: int
    due_ms: int
    mortal: bool
    """Has an attempt limit or a deadline."""
    only: str = ""
    """The one group that gets it."""


class Held(NamedTuple):
    owner: str
    until_ms: int
    """When it loses the lease."""
    released: bool = False


class BrokerModel(RuleBasedStateMachine):
    """The model knows which messages were committed, and what each group was handed and finished, durably."""

    def __init__(self) -> None:
        super().__init__()
        topic = TopicConfig(max_in_flight=4, max_waiting_messages=WAITING_MAX, retry=RetryPolicy(0, 100, 1_000))
        config = BrokerConfig(
            topic=topic,
            lease_ms=LEASE_MS,
            stream_window_bytes=5,
            delayed_max=DELAYED_MAX,
            idempotency_ttl_ms=TTL_MS,
        )
        self.sim = Simulator(config)
        self.count = 0
        self.buried: Counter[int] = Counter()
        """Dead letters looked at, by partition."""
        self.redriven: set[tuple[int, int]] = set()
        """(partition, index) of the dead letters that were sent back."""
        self.start_afresh()

    def start_afresh(self) -> None:
        """What is known about the topic and ends with it."""
        self.consumers: list[Consumer] = []
        self.stored: dict[Place, Stored] = {}
        """Of every produce that was committed, what retention has left."""
        self.finished: dict[str, set[Place]] = defaultdict(set)
        self.rejected: dict[str, set[Place]] = defaultdict(set)
        self.dead: dict[str, set[Place]] = defaultdict(set)
        self.holder: dict[tuple[str, int, int], Held] = {}
        """(group, partition, offset) → the latest delivery."""
        self.not_before: dict[tuple[str, int, int], int] = {}
        """When a consumer that gave it back wants it to be tried again."""
        self.dropped: set[tuple[str, int, int, str]] = set()
        """(group, partition, offset, owner) of deliveries that a seek, a trim or the end of a group made void."""
        self.first_delivered: dict[tuple[str, int], int] = defaultdict(lambda: -1)
        self.watermarks: dict[tuple[str, int], int] = defaultdict(lambda: -1)
        self.paused: set[str] = set()
        self.once: dict[str, tuple[int, Place]] = {}
        """Idempotency key → when it is forgotten, where its message is."""
        self.batches: dict[str, tuple[int, list[Place], list[NewMessage]]] = {}
        """Idempotency key → when it is forgotten, where its messages are, what they were."""

    @initialize()
    def begin(self) -> None:
        self.sim.create("t", PARTITIONS)

    @property
    def topic(self) -> Topic:
        return self.sim.broker.topic("t")

    # Produce

    @rule(key=KEYS, attempts=ATTEMPTS, delay_ms=DELAYS, once=ONCE_KEYS)
    def produce(self, key: bytes, attempts: int, delay_ms: int | None, once: str) -> None:
        self.store_batch([(key, attempts, delay_ms, once)], "", one_by_one=True)

    @rule(messages=MESSAGES, batch_key=BATCH_KEYS)
    def produce_batch(self, messages: list[Any], batch_key: str) -> None:
        self.store_batch(messages, batch_key)

    @rule(messages=MESSAGES, batch_key=BATCH_KEYS, checkpoint=st.booleans())
    def crash_between_the_journal_and_the_answer(self, messages: list[Any], batch_key: str, checkpoint: bool) -> None:
        """The batch is on disk, and nobody was told: with or without a snapshot, it is there after a restart."""
        self.store_batch(messages, batch_key, commit=False)
        self.sim.write()
        if checkpoint:
            self.sim.rotate()
        self.restart()

    @rule(messages=MESSAGES, batch_key=BATCH_KEYS)
    def crash_before_the_journal(self, messages: list[Any], batch_key: str) -> None:
        known = (dict(self.stored), dict(self.once), dict(self.batches))
        self.store_batch(messages, batch_key, commit=False)
        self.stored, self.once, self.batches = known
        self.restart()

    def store_batch(self, drawn: list[Any], batch_key: str, *, one_by_one: bool = False, commit: bool = True) -> None:
        now_ms = self.sim.now_ms
        messages = [self.message(*each) for each in drawn]
        known = self.batches.get(batch_key, (0, [], []))
        repeated = known[0] > now_ms
        if repeated and len(known[1]) == len(messages):
            messages = known[2]
        if repeated and len(known[1]) != len(messages):
            with pytest.raises(FailedPrecondition, match="was used for a batch"):
                self.sim.broker.produce_batch(now_ms, "t", messages, batch_key)
            return
        fresh = [] if repeated else self.fresh(messages)
        full = self.is_full(Counter(self.topic.partition_for(message.key).number for message in fresh))
        try:
            if one_by_one:
                [only] = messages
                placements = [
                    self.sim.broker.produce(
                        now_ms, "t", only.key, only.value, only.envelope, deliver_at_ms=only.deliver_at_ms
                    )
                ]
            else:
                placements = self.sim.broker.produce_batch(now_ms, "t", messages, batch_key)
        except Overloaded:
            assert full, "there was room"
            assert not self.sim.broker.effects.changes, "what was refused has changed something"
            return
        assert not full, "there was no room"
        places = [(placement.partition, placement.offset) for placement in placements]
        if repeated:
            assert places == known[1], "the repeat of a batch was answered with other places"
            assert all(placement.deduplicated for placement in placements)
        else:
            self.note_stored(messages, placements)
            if batch_key:
                self.batches[batch_key] = (now_ms + TTL_MS, places, messages)
                with pytest.raises(FailedPrecondition, match="being stored"):
                    self.sim.broker.produce_batch(now_ms, "t", messages, batch_key)
        if commit:
            self.sim.commit()
            self.note()

    def message(self, key: bytes, attempts: int, delay_ms: int | None, once: str) -> NewMessage:
        self.count += 1
        envelope = None
        if attempts or once:
            policy = RetryPolicy(attempts, backoff_ms=50) if attempts else None
            envelope = Envelope(retry_policy=policy, idempotency_key=once)
        due_ms = None if delay_ms is None else self.sim.now_ms + delay_ms
        return NewMessage(key, b"m%d" % self.count, envelope, None, due_ms)

    def fresh(self, messages: list[NewMessage]) -> list[NewMessage]:
        """Those that were not stored before, each key once."""
        found = []
        seen = {key for key, (expires_ms, _) in self.once.items() if expires_ms > self.sim.now_ms}
        for message in messages:
            key = message.envelope.idempotency_key if message.envelope is not None else ""
            if not key or key not in seen:
                found.append(message)
            seen.add(key)
        return found

    def note_stored(self, messages: list[NewMessage], placements: list[Placement]) -> None:
        now_ms = self.sim.now_ms
        fresh = self.fresh(messages)
        for message, placement in zip(messages, placements, strict=True):
            place = (placement.partition, placement.offset)
            envelope = message.envelope or Envelope()
            assert placement.deduplicated == all(message is not each for each in fresh)
            if placement.deduplicated:
                assert self.once[envelope.idempotency_key][1] == place
                continue
            assert place not in self.stored, "an offset was given out twice"
            mortal = envelope.retry_policy is not None or envelope.deadline is not None
            size = len(message.key) + len(message.value)
            self.stored[place] = Stored(message.value, size, now_ms, message.deliver_at_ms or 0, mortal)
            if envelope.idempotency_key:
                self.once[envelope.idempotency_key] = (now_ms + TTL_MS, place)

    def is_full(self, more: Counter[int]) -> bool:
        """Ruling 10: what the slowest group that counts has left to do."""
        absent_ms = self.sim.config.group_absent_ms
        for group in self.topic.groups.values():
            if group.consumers or self.sim.now_ms - group.last_seen_ms <= absent_ms:
                for number, count in more.items():
                    every = self.places(number)
                    done = self.finished[group.name] | self.passed_over(group.progress[number])
                    if len(every - done) + count > WAITING_MAX:
                        return True
        return False

    def places(self, number: int) -> set[Place]:
        return {place for place in self.stored if place[0] == number}

    def for_others(self, group: str, number: int) -> set[Place]:
        """Messages that only another group gets."""
        return {place for place in self.places(number) if self.stored[place].only not in {"", group}}

    def passed_over(self, progress: Progress) -> set[Place]:
        """Messages that only another group gets, and that this one has left behind."""
        partition = progress.partition
        left = {partition.log.read(index).offset for index in range(progress.position, partition.count)}
        return {place for place in self.for_others(progress.group.name, partition.number) if place[1] not in left}

    @rule(key=KEYS, in_ms=st.sampled_from([1, 100, 1_500, 10_000]), delay_ms=st.sampled_from([None, 0, 1_000]))
    def produce_with_deadline(self, key: bytes, in_ms: int, delay_ms: int | None) -> None:
        if self.is_full(Counter([self.topic.partition_for(key).number])):
            return
        self.count += 1
        deadline = dt.datetime.fromtimestamp((self.sim.now_ms + in_ms) / 1000, dt.UTC)
        due_ms = None if delay_ms is None or delay_ms >= in_ms else self.sim.now_ms + delay_ms
        message = NewMessage(key, b"m%d" % self.count, Envelope(deadline=deadline), None, due_ms)
        placement = self.sim.broker.produce(
            self.sim.now_ms, "t", message.key, message.value, message.envelope, deliver_at_ms=due_ms
        )
        self.note_stored([message], [placement])
        self.sim.commit()
        self.note()

    # Consume

    @rule(
        group=st.sampled_from(GROUPS),
        owner=st.sampled_from(["a", "b", "c"]),
        lease_ms=st.sampled_from([LEASE_MS, LEASE_MS // 2]),
    )
    def attach(self, group: str, owner: str, lease_ms: int) -> None:
        if len(self.consumers) < 6:
            self.consumers.append(self.sim.attach(owner, group, lease_ms=lease_ms))
        self.note()

    @rule(
        group=st.sampled_from(GROUPS),
        owner=st.sampled_from(["a", "b", "c"]),
        credit=st.integers(1, 3),
        window_bytes=st.sampled_from([1, 5, 8, 100]),
    )
    def fetch(self, group: str, owner: str, credit: int, window_bytes: int) -> None:
        if len(self.consumers) < 6:
            self.consumers.append(
                self.sim.pull(owner, group, credit=credit, window_bytes=window_bytes),
            )
        self.note()

    @precondition(lambda self: self.consumers)
    @rule(data=st.data())
    def detach(self, data: st.DataObject) -> None:
        consumer = data.draw(st.sampled_from(self.consumers))
        self.consumers.remove(consumer)
        self.sim.broker.detach(self.sim.now_ms, consumer)
        self.note()

    @precondition(lambda self: self.consumers)
    @rule(data=st.data())
    def reader_falls_behind_or_catches_up(self, data: st.DataObject) -> None:
        consumer = data.draw(st.sampled_from(self.consumers))
        consumer.open = not consumer.open
        if consumer.open:
            self.sim.broker.dispatch(consumer.group, self.sim.now_ms)
            self.sim.commit()
        self.note()

    # Settle

    @precondition(lambda self: self.holder)
    @rule(data=st.data(), stranger=st.booleans())
    def ack(self, data: st.DataObject, stranger: bool) -> None:
        (group, partition, offset), held = data.draw(st.sampled_from(sorted(self.holder.items())))
        try:
            self.sim.ack(offset, "nobody" if stranger else held.owner, group, partition=partition)
        except BrokerError as error:
            is_dead = (partition, offset) in self.dead[group]
            assert stranger or is_dead, f"the holder was refused: {error}"
        else:
            done = (partition, offset) in self.finished[group]
            assert not stranger or done, "somebody else's ack was taken"
            self.finished[group].add((partition, offset))
        self.note()

    @precondition(lambda self: self.holder)
    @rule(data=st.data())
    def ack_many(self, data: st.DataObject) -> None:
        """Some are held by somebody else, some come twice, and some were finished long ago."""
        held = data.draw(st.lists(st.sampled_from(sorted(self.holder.items())), min_size=1, max_size=8))
        (group, _, _), holder = held[0]
        places = [At(partition, offset) for (named, partition, offset), _ in held if named == group]
        fresh = {
            place
            for place in places
            if (place.partition, place.offset) not in self.finished[group]
            and self.holder[group, place.partition, place.offset].owner == holder.owner
        }
        acked_before = self.sim.broker.acked_total
        refused = self.sim.ack_batch(places, holder.owner, group)
        assert self.sim.broker.acked_total - acked_before == len(fresh), "an ack counts once"
        for place in places:
            key = (group, place.partition, place.offset)
            done = (place.partition, place.offset) in self.finished[group]
            if (place.partition, place.offset) in self.dead[group]:
                assert place in refused
                continue
            assert done or (place in refused) == (self.holder[key].owner != holder.owner)
            if place not in refused:
                self.finished[group].add((place.partition, place.offset))
        self.note()

    @precondition(lambda self: self.holder)
    @rule(
        data=st.data(),
        delay_ms=st.sampled_from([None, 0, 70, 2_000]),
        retryable=st.sampled_from([True, True, False]),
        counted=st.sampled_from([True, True, False]),
    )
    def nack(self, data: st.DataObject, delay_ms: int | None, retryable: bool, counted: bool) -> None:
        retryable = retryable or not counted
        key, held = data.draw(st.sampled_from(sorted(self.holder.items())))
        group, partition, offset = key
        if not held.released and (partition, offset) not in self.finished[group]:
            self.holder[key] = Held(held.owner, self.sim.now_ms, released=True)
            self.not_before[key] = self.sim.now_ms + (delay_ms or 0)
            if not retryable:
                self.rejected[group].add((partition, offset))
        self.sim.nack(
            offset,
            held.owner,
            "boom",
            group,
            partition=partition,
            delay_ms=delay_ms,
            retryable=retryable,
            counted=counted,
        )
        self.note()
        if not retryable:
            assert (partition, offset) in self.finished[group] or held.released, "it was rejected and is not finished"

    @precondition(lambda self: self.holder)
    @rule(data=st.data(), lease_ms=st.sampled_from([1, 500, 5_000]))
    def extend(self, data: st.DataObject, lease_ms: int) -> None:
        (group, partition, offset), held = data.draw(st.sampled_from(sorted(self.holder.items())))
        try:
            until_ms = self.sim.broker.extend(self.sim.now_ms, "t", group, partition, offset, held.owner, lease_ms)
        except BrokerError:
            return  # finished, or given back
        self.holder[group, partition, offset] = Held(held.owner, until_ms)
        self.sim.commit()
        self.note()

    @precondition(lambda self: self.stored)
    @rule(
        data=st.data(),
        group=st.sampled_from(GROUPS),
        operation=st.sampled_from(["retry", "reject", "discard", "release"]),
    )
    def operate(self, data: st.DataObject, group: str, operation: str) -> None:
        """An operator helps a message, whoever holds it."""
        place = data.draw(st.sampled_from(sorted(self.stored)))
        known = self.topic.groups.get(group)
        if known is None or (operation == "retry" and self.stored[place].due_ms > self.sim.now_ms):
            return
        key = (group, *place)
        was_rejected = place in self.rejected[group]
        if operation == "reject":
            self.rejected[group].add(place)
        try:
            getattr(self.sim.broker.operations, operation)(self.sim.now_ms, known, *place)
        except BrokerError as error:
            assert not self.sim.broker.effects.changes
            done = place in self.finished[group] or self.stored[place].only not in {"", group}
            assert done or operation in {"retry", "release"}, f"{place} could not be finished: {error}"
            if not was_rejected:
                self.rejected[group].discard(place)
            return
        assert place not in self.finished[group], f"{place} was finished already"
        if operation == "release":
            self.holder[key] = Held(self.holder[key].owner, self.sim.now_ms, released=True)
        elif operation == "retry":
            self.not_before.pop(key, None)
        elif operation == "discard":
            self.finished[group].add(place)
        self.sim.commit()
        self.note()
        assert operation != "reject" or place in self.finished[group]

    @precondition(lambda self: self.dropped)
    @rule(data=st.data(), how=st.sampled_from(["ack", "nack", "extend"]))
    def settle_what_was_taken_away(self, data: st.DataObject, how: str) -> None:
        """It is refused or does nothing; what the group has left to do shows that (`nothing_is_lost`)."""
        group, partition, offset, owner = data.draw(st.sampled_from(sorted(self.dropped)))
        if (group, partition, offset) in self.holder:
            return  # delivered again since: somebody holds it
        with contextlib.suppress(BrokerError):
            getattr(self.sim.broker, how)(self.sim.now_ms, "t", group, partition, offset, owner)
        self.sim.commit()
        self.note()

    @rule(data=st.data())
    def settle_what_was_never_delivered(self, data: st.DataObject) -> None:
        groups = self.topic.groups.values()
        held_back = [
            (group.name, p.partition.number, o)
            for group in groups
            for p in group.progress
            for o, x in p.postponed.items()
            if not x.attempts
        ]
        if held_back:
            group, partition, offset = data.draw(st.sampled_from(held_back))
            with pytest.raises(InvalidArgument, match="never delivered"):
                self.sim.ack(offset, "a", group, partition=partition)

    # Groups

    @rule(
        group=st.sampled_from(GROUPS),
        to=st.sampled_from(["earliest", "latest", "offset", "time"]),
        one=st.one_of(st.none(), st.integers(0, PARTITIONS_MAX - 1)),
        data=st.data(),
    )
    def seek(self, group: str, to: str, one: int | None, data: st.DataObject) -> None:
        if one is not None and one >= len(self.topic.partitions):
            return
        offset = data.draw(st.integers(0, self.topic.next_offset)) if to == "offset" else 0
        back_ms = data.draw(st.sampled_from([0, 60, 1_000])) if to == "time" else 0
        at_ms = self.sim.now_ms - back_ms

        def find(partition: Partition) -> int:
            if to == "offset":
                return partition.log.index_from(offset)
            if to == "time":
                return partition.log.index_at(at_ms)
            return partition.first_index if to == "earliest" else partition.committed

        passed = {
            place
            for place, stored in self.stored.items()
            if to == "latest" or (to == "offset" and place[1] < offset) or (to == "time" and stored.at_ms < at_ms)
        }
        for number in range(len(self.topic.partitions)) if one is None else [one]:
            self.finished[group] -= self.places(number)
            self.finished[group] |= self.places(number) & passed
            self.dead[group] -= self.places(number) - passed
            self.forget_deliveries(group, number)
        self.sim.broker.seek(self.sim.now_ms, "t", group, find, one)
        self.sim.commit()
        self.note()

    def forget_deliveries(self, group: str, number: int, places: set[Place] | None = None) -> None:
        """Nobody holds anything there any more."""
        for key in [key for key in self.holder if key[:2] == (group, number)]:
            if places is None or key[1:] in places:
                self.dropped.add((*key, self.holder.pop(key).owner))
                self.not_before.pop(key, None)
        if places is None:
            self.first_delivered.pop((group, number), None)
            self.watermarks.pop((group, number), None)

    @rule(group=st.sampled_from(GROUPS), paused=st.booleans())
    def pause_or_resume(self, group: str, paused: bool) -> None:
        if group not in self.topic.groups:
            return
        self.paused.discard(group)
        self.sim.broker.pause(self.sim.now_ms, "t", group, paused=paused)
        self.sim.commit()
        self.note()
        if paused:
            self.paused.add(group)

    @rule(group=st.sampled_from(GROUPS))
    def forget_group(self, group: str) -> None:
        if group not in self.topic.groups:
            return
        self.sim.broker.forget_group("t", group)
        self.check_ended([consumer for consumer in self.consumers if consumer.group.name == group])
        self.sim.commit()
        for number in range(len(self.topic.partitions)):
            self.forget_deliveries(group, number)
        self.finished[group].clear()
        self.rejected[group].clear()
        self.dead[group].clear()
        self.paused.discard(group)
        self.note()

    def check_ended(self, expected: list[Consumer]) -> None:
        ended, self.sim.broker.effects.ended = self.sim.broker.effects.ended, []
        assert set(ended) == set(expected), "those who read are told that nothing will come"
        assert not any(consumer.ready for consumer in ended)
        self.consumers = [consumer for consumer in self.consumers if consumer not in ended]

    # Topics

    @rule()
    def grow(self) -> None:
        count = len(self.topic.partitions) + 1
        if count > PARTITIONS_MAX:
            return
        graveyard = self.sim.broker.state.topics.get("dlq.t")
        self.sim.broker.change_topic(self.sim.now_ms, "t", TopicOverrides(), count)
        self.sim.commit()
        assert len(self.topic.partitions) == count
        assert graveyard is None or len(graveyard.partitions) >= count
        self.note()

    @rule(partitions=st.integers(1, 3), unwritten=st.booleans())
    def delete_and_create_anew(self, partitions: int, unwritten: bool) -> None:
        """What was about to be written or delivered, who held what and which deadlines were watched ends with it."""
        old = self.topic
        if unwritten and not self.is_full(Counter([0])):
            self.sim.broker.produce(self.sim.now_ms, "t", b"", b"last", Envelope(idempotency_key="once"))
        self.sim.broker.delete_topic("t")
        self.check_ended(self.consumers)
        self.sim.commit()
        self.sim.create("t", partitions)
        assert self.topic.id > old.id, "the number of a topic was given out twice"
        self.start_afresh()
        self.note()

    @precondition(lambda self: "dlq.t" in self.sim.broker.state.topics)
    @rule()
    def delete_dead_letters(self) -> None:
        self.sim.broker.delete_topic("dlq.t")
        self.sim.commit()
        self.buried.clear()
        self.redriven.clear()

    @rule(data=st.data(), dead=st.booleans())
    def retention(self, data: st.DataObject, dead: bool) -> None:
        topic = self.sim.broker.state.topics.get("dlq.t") if dead else self.topic
        found = [p for p in topic.partitions if p.first_index < p.committed] if topic is not None else []
        if not found:
            return
        partition = data.draw(st.sampled_from(found))
        end = data.draw(st.integers(partition.first_index + 1, partition.committed))
        log = partition.log
        first_offset = log.read(end - 1).offset + 1
        if not dead:
            gone = {place for place in self.places(partition.number) if place[1] < first_offset}
            for place in gone:
                del self.stored[place]
            for group in GROUPS:
                self.finished[group] -= gone
                self.forget_deliveries(group, partition.number, gone)
        self.sim.broker.trim(self.sim.now_ms, partition, end, log.bytes_before(end), first_offset)
        self.sim.commit()
        self.note()

    @precondition(lambda self: "dlq.t" in self.sim.broker.state.topics)
    @rule(data=st.data(), all_groups=st.booleans())
    def redrive(self, data: st.DataObject, all_groups: bool) -> None:
        graveyard = self.sim.broker.topic("dlq.t")
        found = [(p, index) for p in graveyard.partitions for index in range(p.first_index, p.committed)]
        if not found:
            return
        dead, index = data.draw(st.sampled_from(found))
        record = dead.log.read(index)
        envelope = decode_meta(record.meta).envelope
        assert envelope is not None
        assert envelope.dlq is not None
        here = envelope.dlq.original_partition < len(self.topic.partitions)
        number = envelope.dlq.original_partition if here else self.topic.partition_for(record.key).number
        before = (dead.number, index) in self.redriven
        full = not before and self.is_full(Counter([number]))
        only = "" if all_groups else envelope.dlq.group
        try:
            placement = self.sim.broker.intake.redrive(self.sim.now_ms, dead, index, all_groups=all_groups)
        except FailedPrecondition:
            assert only, "every group would have got it"
            assert only not in self.topic.groups, "the group is there"
            assert not self.sim.broker.effects.changes
            return
        except Overloaded:
            assert full, "there was room"
            assert not self.sim.broker.effects.changes
            return
        assert not full, "there was no room"
        assert (placement is None) == before, "a dead letter is sent back exactly once"
        if placement is not None:
            assert placement.partition == number
            self.redriven.add((dead.number, index))
            mortal = envelope.retry_policy is not None or envelope.deadline is not None
            place = (placement.partition, placement.offset)
            self.stored[place] = Stored(record.value, record.size, self.sim.now_ms, 0, mortal, only)
        self.sim.commit()
        self.note()

    # Time and crashes

    @rule(ms=st.sampled_from([1, 60, 400, LEASE_MS, 5_000, 30_000, 3_600_000]))
    def time_passes(self, ms: int) -> None:
        self.sim.advance(ms)
        due_ms = self.sim.broker.next_due_ms()
        assert due_ms is None or due_ms > self.sim.now_ms, "the clock would be looked at again and again"
        self.note()

    @rule(checkpoint=st.booleans())
    def crash(self, checkpoint: bool) -> None:
        if checkpoint:
            self.sim.checkpoint()
        self.restart()

    def restart(self) -> None:
        self.sim.crash()
        self.consumers = []
        self.sim.take()
        self.watermarks.clear()  # what was finished ahead is passed again when somebody reads
        self.note()

    # What must always hold

    def note(self) -> None:
        """Looks at what the last command brought about."""
        self.consumers = [c for c in self.consumers if not (isinstance(c.sink, Pull) and c.sink.taken)]
        deliveries, self.sim.delivered = self.sim.delivered, []
        self.note_dead_letters()
        pulled: dict[Consumer, list[Record]] = defaultdict(list)
        for delivery in deliveries:
            if isinstance(delivery.consumer.sink, Pull):
                pulled[delivery.consumer].append(delivery.record)
            self.note_delivery(delivery.consumer.group.name, delivery.consumer.owner, delivery)
        for consumer, records in pulled.items():
            assert consumer.credit is not None
            assert consumer.credit >= 0
            size = sum(record.size + len(record.meta) for record in records)
            assert len(records) == 1 or size <= consumer.window_bytes, "more bytes than were asked for"

    def note_delivery(self, group: str, owner: str, delivery: Any) -> None:
        place = (delivery.partition, delivery.record.offset)
        key = (group, *place)
        stored = self.stored.get(place)
        assert stored is not None, f"{place} was delivered and is not there"
        assert stored.value == delivery.record.value
        assert stored.only in {"", group}, f"{place} is for {stored.only} only, and was delivered to {group}"
        assert place not in self.finished[group], f"{place} was delivered to {group} after it was finished"
        assert stored.due_ms <= self.sim.now_ms, f"{place} was delivered before it was due"
        assert self.not_before.pop(key, 0) <= self.sim.now_ms, f"{place} was tried again too early"
        assert group not in self.paused, f"{place} was delivered to {group}, which is paused"
        if delivery.attempts == 1 and stored.due_ms <= stored.at_ms and key not in self.holder:
            last = self.first_delivered[group, delivery.partition]
            assert delivery.record.offset > last, f"first deliveries out of order: {place} after {last}"
            self.first_delivered[group, delivery.partition] = delivery.record.offset
        before = self.holder.get(key)
        if before is not None:
            assert before.until_ms <= self.sim.now_ms, f"{place} went to {owner} while {before.owner} held it"
        self.holder[key] = Held(owner, self.sim.now_ms + delivery.consumer.lease_ms)

    def note_dead_letters(self) -> None:
        graveyard = self.sim.broker.state.topics.get("dlq.t")
        for partition in graveyard.partitions if graveyard else []:
            for index in range(self.buried[partition.number], partition.count):
                envelope = decode_meta(partition.log.read(index).meta).envelope
                assert envelope is not None
                letter = envelope.dlq
                assert letter is not None
                group, place = letter.group, (letter.original_partition, letter.original_offset)
                assert place not in self.finished[group], (
                    f"{place} was dead-lettered for {group}, which had finished it"
                )
                assert place in self.rejected[group] or self.stored[place].mortal, "without limit, and dead-lettered"
                self.finished[group].add(place)
                self.dead[group].add(place)
            self.buried[partition.number] = partition.count

    @invariant()
    def nothing_is_lost(self) -> None:
        if "t" not in self.sim.broker.state.topics:
            return
        for partition in self.topic.partitions:
            log = [partition.log.read(index) for index in range(partition.first_index, partition.count)]
            expected = {place[1]: self.stored[place].value for place in self.places(partition.number)}
            assert {record.offset: record.value for record in log} == expected
        for group in self.topic.groups.values():
            assert group.paused == (group.name in self.paused)
            for progress in group.progress:
                self.check_progress(group, progress)

    def check_progress(self, group: Group, progress: Progress) -> None:
        partition = progress.partition
        number = partition.number
        every = self.places(number)
        others = self.for_others(group.name, number)
        done = (self.finished[group.name] & every - others) | self.passed_over(progress)
        leased = {(number, offset) for offset in progress.leases}
        postponed = {(number, offset) for offset in progress.postponed}
        ahead = {(number, offset) for offset in progress.finished_ahead}
        waiting = {
            (number, partition.log.read(index).offset) for index in range(progress.position, partition.count)
        } - ahead
        left = [done, leased, postponed, waiting]
        found: set[Place] = set().union(*left)
        assert found == every, f"{group.name} lost {every - found}"
        assert sum(map(len, left)) == len(every), f"counted twice: {left}"
        assert progress.done == partition.first_index + len(done)
        assert progress.done_bytes == partition.first_bytes + sum(self.stored[place].size for place in done)
        assert partition.committed < partition.count or progress.lag == len(every - done - others)
        assert len(progress.leases) <= self.topic.config.max_in_flight
        assert len(progress.postponed) - progress.retrying <= DELAYED_MAX
        assert progress.retrying == sum(lease.attempts > 0 for lease in progress.postponed.values())
        assert progress.retrying < DELAYED_MAX + self.topic.config.max_in_flight

    @invariant()
    def the_watermark_only_goes_back_by_seeking(self) -> None:
        if "t" not in self.sim.broker.state.topics:
            return
        for group in self.topic.groups.values():
            for progress in group.progress:
                number = progress.partition.number
                watermark = progress.watermark
                assert watermark >= self.watermarks[group.name, number], "the watermark went back"
                self.watermarks[group.name, number] = watermark
                below = {place for place in self.places(number) if place[1] <= watermark}
                others = self.for_others(group.name, number)
                assert below - others <= self.finished[group.name], "the watermark is above something unfinished"

    @invariant()
    def what_is_due_is_not_forgotten(self) -> None:
        """Whatever is unfinished is waiting for a consumer, on lease, or has a timer that will bring it back."""
        for group in self.sim.broker.state.groups_by_id.values():
            limit = group.topic.config.max_in_flight
            for progress in group.progress:
                timed = [lease.until_ms for lease in progress.leases.values()]
                if group.can_take() and len(progress.leases) < limit:
                    timed += [lease.until_ms for lease in progress.postponed.values()]
                    assert all(due_ms > self.sim.now_ms for due_ms in timed), "somebody could take what is due"
                    self.check_nothing_waits(progress)
                if timed:
                    assert progress.timer_ms is not None
                    assert progress.timer_ms <= min(timed)

    def check_nothing_waits(self, progress: Progress) -> None:
        if progress.position < progress.partition.committed:
            if progress.retrying >= DELAYED_MAX:
                return
            assert len(progress.postponed) >= DELAYED_MAX, "a consumer could take the next message"
            place = (progress.partition.number, progress.partition.log.read(progress.position).offset)
            assert self.stored[place].due_ms > self.sim.now_ms
            assert progress.timer_ms is not None
            assert progress.timer_ms <= self.stored[place].due_ms

    @invariant()
    def a_restart_would_find_the_same(self) -> None:
        """The state is the fold of the changes, with and without a snapshot (ADR 2)."""
        live = self.sim.broker
        expected = _comparable(live.snapshot(), self.sim.now_ms)
        assert _comparable(self.sim.recovered({}).snapshot(), self.sim.now_ms) == expected
        restored = Broker(self.sim.config, lambda topic, _, number: ListLog(list(self.sim.logs[topic, number].records)))
        restored.restore(live.snapshot())
        assert _comparable(restored.snapshot(), self.sim.now_ms) == expected


def _comparable(snapshot: bytes, now_ms: int) -> object:
    """Without what a restart may know better: who was seen when, and what has come due meanwhile."""
    data = msgspec.to_builtins(decode_snapshot(snapshot), builtin_types=(bytes,))
    data[3] = sorted(deadline for deadline in data[3] if deadline[0] > now_ms)
    for registry in (1, 2, 5):
        data[registry] = _last_words(data[registry], now_ms)
    for topic in data[0]:
        for group in topic[6]:
            group[2] = 0
            for progress in group[4]:
                progress[3] = [[*lease[:6], 0 if lease[6] == 0 else 1, *lease[7:]] for lease in progress[3]]
                progress[5] = sorted(progress[5])
                _pass_finished(progress)
    return data


def _last_words(pages: list[bytes], now_ms: int) -> list[Any]:
    """What a registry knows about each key. What was under way is done, if the snapshot is ever used."""
    operations = [operation for page in pages for operation in msgspec.msgpack.decode(page)]
    latest = {tuple(operation[0]): operation for operation in operations}
    return sorted([*operation[:1], 1, *operation[2:]] for operation in latest.values() if operation[2] > now_ms)


def _pass_finished(progress: list[Any]) -> None:
    """Stepping over what was finished ahead is in no journal: it happens again when it is read again."""
    by_index = {index: offset for offset, (index, _) in progress[4].items()}
    while progress[0] in by_index:
        progress[1] = by_index[progress[0]]
        del progress[4][progress[1]]
        progress[0] += 1


STEPS = settings(
    stateful_step_count=50,
    deadline=None,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)


class BrokerModelForLong(BrokerModel):
    """The same rules, for as many examples as take minutes."""


BrokerModel.TestCase.settings = settings(STEPS, max_examples=100)
BrokerModelForLong.TestCase.settings = settings(STEPS, max_examples=5_000)
TestBroker = BrokerModel.TestCase
TestBrokerForLong = pytest.mark.long(pytest.mark.timeout(900)(BrokerModelForLong.TestCase))
