"""The broker against a model simple enough to be seen right: random commands, clock jumps, crashes and restarts."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from typing import Any

import hypothesis.strategies as st
import msgspec
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from slipstream.broker import BrokerConfig, BrokerError, Consumer, RetryPolicy, TopicConfig, decode_meta
from slipstream.broker.group import LeaseState
from slipstream.broker.snapshot import _decode as decode_snapshot  # the comparison wants the data, not the bytes
from tests.broker.simulator import Simulator

PARTITIONS = 2
GROUPS = ("red", "blue")
LEASE_MS = 1_000


class BrokerModel(RuleBasedStateMachine):
    """The model knows which messages were committed, and what each group was handed and finished, durably."""

    def __init__(self) -> None:
        super().__init__()
        topic = TopicConfig(max_in_flight=4, retry=RetryPolicy(0, 100, 1_000))
        self.sim = Simulator(BrokerConfig(topic=topic, lease_ms=LEASE_MS, stream_window_bytes=5))
        self.consumers: list[Consumer] = []
        self.stored: dict[tuple[int, int], bytes] = {}
        """(partition, offset) → value, of every produce that was committed."""
        self.finished: dict[str, set[tuple[int, int]]] = defaultdict(set)
        self.doomed: dict[str, set[tuple[int, int]]] = defaultdict(set)
        """May be dead-lettered: has an attempt limit or a deadline."""
        self.holder: dict[tuple[str, int, int], tuple[str, int]] = {}
        """(group, partition, offset) → (owner, when it loses the lease) of the latest delivery."""
        self.first_delivered: dict[tuple[str, int], int] = defaultdict(lambda: -1)
        self.watermarks: dict[tuple[str, int], int] = defaultdict(lambda: -1)
        self.count = 0

    @initialize()
    def begin(self) -> None:
        self.sim.create("t", PARTITIONS)

    # Commands

    @rule(key=st.sampled_from([b"", b"user:1", b"user:2", b"user:3"]), attempts=st.sampled_from([0, 0, 1, 3]))
    def produce(self, key: bytes, attempts: int) -> None:
        self.count += 1
        value = b"m%d" % self.count
        policy = {"retry_policy": {"max_attempts": attempts, "backoff_ms": 50}} if attempts else {}
        placement = self.sim.produce(value, key=key, envelope=policy)
        place = (placement.partition, placement.offset)
        assert place not in self.stored, "an offset was given out twice"
        self.stored[place] = value
        if attempts:
            for group in GROUPS:
                self.doomed[group].add(place)
        self.note_deliveries()

    @rule(key=st.sampled_from([b"", b"user:1"]), in_ms=st.sampled_from([1, 100, 1_500, 10_000]))
    def produce_with_deadline(self, key: bytes, in_ms: int) -> None:
        self.count += 1
        value = b"m%d" % self.count
        deadline = dt.datetime.fromtimestamp((self.sim.now_ms + in_ms) / 1000, dt.UTC)
        placement = self.sim.produce(value, key=key, envelope={"deadline": deadline})
        place = (placement.partition, placement.offset)
        self.stored[place] = value
        for group in GROUPS:
            self.doomed[group].add(place)
        self.note_deliveries()

    @precondition(lambda self: self.consumers)
    @rule(data=st.data())
    def reader_falls_behind_or_catches_up(self, data: st.DataObject) -> None:
        consumer = data.draw(st.sampled_from(self.consumers))
        consumer.open = not consumer.open
        if consumer.open:
            self.sim.broker.dispatch(consumer.group, self.sim.now_ms)
            self.sim.commit()
        self.note_deliveries()

    @precondition(lambda self: self.holder)
    @rule(data=st.data(), lease_ms=st.sampled_from([1, 500, 5_000]))
    def extend(self, data: st.DataObject, lease_ms: int) -> None:
        (group, partition, offset), (owner, _) = data.draw(st.sampled_from(sorted(self.holder.items())))
        try:
            until_ms = self.sim.broker.extend(self.sim.now_ms, "t", group, partition, offset, owner, lease_ms)
        except BrokerError:
            return  # finished, or given back
        self.holder[group, partition, offset] = (owner, until_ms)
        self.sim.commit()
        self.note_deliveries()

    @rule(group=st.sampled_from(GROUPS), owner=st.sampled_from(["a", "b", "c"]))
    def attach(self, group: str, owner: str) -> None:
        if len(self.consumers) < 6:
            self.consumers.append(self.sim.attach(owner, group))
        self.note_deliveries()

    @precondition(lambda self: self.consumers)
    @rule(data=st.data())
    def detach(self, data: st.DataObject) -> None:
        consumer = data.draw(st.sampled_from(self.consumers))
        self.consumers.remove(consumer)
        self.sim.broker.detach(self.sim.now_ms, consumer)
        self.note_deliveries()

    @precondition(lambda self: self.holder)
    @rule(data=st.data(), stranger=st.booleans())
    def ack(self, data: st.DataObject, stranger: bool) -> None:
        (group, partition, offset), (owner, _) = data.draw(st.sampled_from(sorted(self.holder.items())))
        try:
            self.sim.ack(offset, "nobody" if stranger else owner, group, partition=partition)
        except BrokerError as error:
            assert stranger, f"the holder was refused: {error}"
        else:
            done = (partition, offset) in self.finished[group] or (partition, offset) in self.dead(group)
            assert not stranger or done, "somebody else's ack was taken"
            if not done:
                self.finished[group].add((partition, offset))
        self.note_deliveries()

    @precondition(lambda self: self.holder)
    @rule(data=st.data())
    def nack(self, data: st.DataObject) -> None:
        (group, partition, offset), (owner, _) = data.draw(st.sampled_from(sorted(self.holder.items())))
        self.holder[group, partition, offset] = (owner, self.sim.now_ms)
        self.sim.nack(offset, owner, "boom", group, partition=partition)
        self.note_deliveries()

    @rule(ms=st.sampled_from([1, 60, 400, LEASE_MS, 5_000, 3_600_000]))
    def time_passes(self, ms: int) -> None:
        self.sim.advance(ms)
        self.note_deliveries()

    @rule(checkpoint=st.booleans())
    def crash(self, checkpoint: bool) -> None:
        if checkpoint:
            self.sim.checkpoint()
        before = decode_snapshot(self.sim.broker.snapshot())
        self.sim.crash()
        after = decode_snapshot(self.sim.broker.snapshot())
        self.consumers = []
        self.sim.take()
        self.watermarks.clear()  # what was finished ahead is passed again when somebody reads
        now_ms = self.sim.now_ms
        assert _comparable(after, now_ms) == _comparable(before, now_ms), "a restart changed what was committed"

    # What must always hold

    def note_deliveries(self) -> None:
        deliveries, self.sim.delivered = self.sim.delivered, []
        for delivery in deliveries:
            group, owner = delivery.consumer.group.name, delivery.consumer.owner
            place = (delivery.partition, delivery.record.offset)
            assert self.stored.get(place) == delivery.record.value, "something was delivered that was never stored"
            assert place not in self.finished[group], f"{place} was delivered to {group} after it was finished"
            if delivery.attempts == 1:
                last = self.first_delivered[group, delivery.partition]
                assert delivery.record.offset > last, f"first deliveries out of order: {place} after {last}"
                self.first_delivered[group, delivery.partition] = delivery.record.offset
            key = (group, *place)
            before = self.holder.get(key)
            if before is not None:
                assert before[1] <= self.sim.now_ms, f"{place} went to {owner} while {before[0]} held it"
            self.holder[key] = (owner, self.sim.now_ms + LEASE_MS)

    def dead(self, group: str) -> set[tuple[int, int]]:
        """What the dead letters say about this group."""
        graveyard = self.sim.broker.state.topics.get("dlq.t")
        places = set()
        for partition in graveyard.partitions if graveyard else []:
            for index in range(partition.count):
                envelope = decode_meta(partition.log.read(index).meta).envelope
                assert envelope is not None
                assert envelope.dlq is not None
                if envelope.dlq.group == group:
                    place = (envelope.dlq.original_partition, envelope.dlq.original_offset)
                    assert place not in places, f"{place} was dead-lettered twice for {group}"
                    places.add(place)
        return places

    @invariant()
    def nothing_is_lost(self) -> None:
        topic = self.sim.broker.state.topics.get("t")
        if topic is None:
            return
        for partition in topic.partitions:
            log = [partition.log.read(index) for index in range(partition.count)]
            expected = {o: v for (p, o), v in self.stored.items() if p == partition.number}
            assert {r.offset: r.value for r in log} == expected
        for group in topic.groups.values():
            dead = self.dead(group.name)
            assert dead <= self.doomed[group.name], "a message without limit was dead-lettered"
            for progress in group.progress:
                number = progress.partition.number
                every = {(p, o) for p, o in self.stored if p == number}
                done = {place for place in self.finished[group.name] | dead if place[0] == number}
                leased = {(number, offset) for offset in progress.leases}
                waiting = {
                    (number, progress.partition.log.read(i).offset)
                    for i in range(progress.position, progress.partition.count)
                } - {(number, offset) for offset in progress.finished_ahead}
                assert done | leased | waiting == every, f"{group.name} lost {every - done - leased - waiting}"
                assert not done & leased
                assert not done & waiting
                assert progress.done == len(done)
                assert len(progress.leases) <= topic.config.max_in_flight

    @invariant()
    def the_watermark_never_goes_back(self) -> None:
        topic = self.sim.broker.state.topics.get("t")
        for group in topic.groups.values() if topic else []:
            dead = self.dead(group.name)
            for progress in group.progress:
                number = progress.partition.number
                watermark = progress.watermark
                assert watermark >= self.watermarks[group.name, number], "the watermark went back"
                self.watermarks[group.name, number] = watermark
                below = {place for place in self.stored if place[0] == number and place[1] <= watermark}
                assert below <= self.finished[group.name] | dead, "the watermark is above something unfinished"

    @invariant()
    def what_is_due_is_not_forgotten(self) -> None:
        """Whatever is unfinished is waiting for a consumer, on lease, or has a timer that will bring it back."""
        for group in self.sim.broker.state.groups_by_id.values():
            for progress in group.progress:
                timed = [x for x in progress.leases.values() if x.state is not LeaseState.READY]
                if timed:
                    assert progress.timer_ms is not None
                    assert progress.timer_ms <= min(lease.until_ms for lease in timed)


def _comparable(snapshot: object, now_ms: int) -> object:
    """Without what a restart may know better: who was seen when, and what has come due meanwhile."""
    data = msgspec.to_builtins(snapshot)
    data[3] = sorted(deadline for deadline in data[3] if deadline[0] > now_ms)
    for topic in data[0]:
        for group in topic[6]:
            group[2] = 0
            for progress in group[4]:
                progress[3] = [[*lease[:6], 0 if lease[6] == 0 else 1, *lease[7:]] for lease in progress[3]]
                _pass_finished(progress)
    return data


def _pass_finished(progress: list[Any]) -> None:
    """Stepping over what was finished ahead is in no journal: it happens again when it is read again."""
    by_index = {index: offset for offset, (index, _) in progress[4].items()}
    while progress[0] in by_index:
        progress[1] = by_index[progress[0]]
        del progress[4][progress[1]]
        progress[0] += 1


BrokerModel.TestCase.settings = settings(
    max_examples=300, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestBroker = BrokerModel.TestCase
