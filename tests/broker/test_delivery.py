"""Timers, damaged logs and limits of the dispatcher: what must not stop, spin or grow."""

from __future__ import annotations

import datetime as dt

import pytest

from slipstream.broker import BrokerConfig, RetryPolicy, TopicConfig, Unavailable
from slipstream.record import LogUnreadable, Record
from tests.broker.simulator import ListLog, Simulator


def deadline(sim: Simulator, in_ms: int) -> dict[str, object]:
    return {"deadline": dt.datetime.fromtimestamp((sim.now_ms + in_ms) / 1000, dt.UTC)}


def damage(sim: Simulator, index: int, topic: str = "t", partition: int = 0) -> None:
    """From now on the record at `index` cannot be read."""
    log = sim.broker.state.topics[topic].partitions[partition].log
    assert isinstance(log, ListLog)

    def read(wanted: int) -> Record:
        if wanted == index:
            raise LogUnreadable("the segment does not match its checksum")
        return log.records[wanted]

    log.read = read  # type: ignore[assignment, method-assign]


def test_a_lease_that_runs_out_on_a_damaged_record_does_not_keep_the_clock_busy() -> None:
    """The lease cannot be failed without its record; looking at it again at once would never end."""
    sim = Simulator()
    sim.create()
    sim.produce()
    sim.attach()
    damage(sim, 0)
    sim.advance(10_000)
    assert sim.broker.next_due_ms() is None, "nothing is due where nothing can be done"
    assert sim.broker.topic("t").groups["g"].progress[0].unreadable


def test_a_nack_that_cannot_be_carried_out_is_not_answered_as_done() -> None:
    sim = Simulator()
    sim.create()
    sim.produce()
    sim.attach()
    damage(sim, 0)
    with pytest.raises(Unavailable, match="checksum"):
        sim.nack(0)


def test_a_damaged_record_that_a_group_has_finished_does_not_stop_it_at_its_deadline() -> None:
    sim = Simulator()
    sim.create()
    sim.produce(envelope=deadline(sim, 5_000))
    sim.attach()
    sim.ack(0)
    damage(sim, 0)
    sim.advance(5_000)
    sim.take()
    sim.produce()
    assert sim.take() == [(1, 1, "o")]


def test_a_group_goes_on_when_retention_has_removed_the_damage() -> None:
    sim = Simulator()
    sim.create()
    sim.produce()
    damage(sim, 0)
    sim.attach()
    sim.produce()
    assert sim.take() == []
    sim.broker.trim(sim.now_ms, sim.broker.topic("t").partitions[0], 1, 1)
    sim.commit()
    assert sim.take() == [(1, 1, "o")]


def test_a_deadline_that_frees_a_place_lets_the_next_message_through() -> None:
    """Ruling 7: the dead letter leaves the group's limit, and nobody else comes by to look."""
    sim = Simulator(BrokerConfig(topic=TopicConfig(max_in_flight=1, retry=RetryPolicy(0, 3_600_000))))
    sim.create()
    sim.produce(envelope=deadline(sim, 5_000))
    sim.produce()
    sim.attach()
    sim.nack(0)
    assert sim.take() == [(0, 1, "o")]
    sim.advance(5_000)
    assert sim.take() == [(1, 1, "o")]


def test_the_timers_do_not_pile_up_behind_a_long_lease() -> None:
    """Each retry sets an earlier time; what it replaced must not stay for the length of the longest lease."""
    sim = Simulator(BrokerConfig(topic=TopicConfig(retry=RetryPolicy(0, 10, 10))))
    sim.create()
    sim.produce()
    sim.produce()
    sim.attach(lease_ms=3_600_000)
    for _ in range(5_000):
        sim.nack(1)
        sim.advance(10)
    assert len(sim.broker.dispatcher._timers) < 1_000


def test_what_was_finished_ahead_costs_a_delivery_nothing() -> None:
    """Thousands of deadlines that passed while nobody read must not be looked through with each delivery."""
    sim = Simulator()
    sim.create()
    sim.attach("early", credit=0)
    sim.produce()
    for _ in range(100):
        sim.produce(envelope=deadline(sim, 1))
    sim.advance(1)
    progress = sim.broker.topic("t").groups["g"].progress[0]
    assert len(progress.finished_ahead) == 100
    looked_at = 0

    class Counting(dict[int, tuple[int, int]]):
        def items(self):  # type: ignore[no-untyped-def]
            nonlocal looked_at
            looked_at += len(self)
            return super().items()

    progress.finished_ahead = Counting(progress.finished_ahead)
    sim.attach("late", credit=1)
    assert sim.take() == [(0, 1, "late")]
    assert looked_at == 0


def test_a_consumer_is_handed_one_window_at_a_time() -> None:
    sim = Simulator(BrokerConfig(stream_window_bytes=10))
    sim.create()
    for _ in range(20):
        sim.produce(b"12345")
    consumer = sim.broker.attach(sim.now_ms, "t", "g", "o")
    assert len(sim.broker.effects.deliveries) == 2
    consumer.open = False
    sim.commit()
    assert len(sim.take()) == 2, "it is not open: nothing follows what was sent"
    consumer.open = True
    sim.broker.dispatch(consumer.group, sim.now_ms)
    sim.commit()
    assert len(sim.take()) == 18


def test_a_full_partition_does_not_take_every_window_from_the_others() -> None:
    sim = Simulator(BrokerConfig(stream_window_bytes=4))
    sim.create(partitions=3)
    for _ in range(100):
        for partition in range(3):
            sim.produce(b"1234", envelope={"partition_override": partition})
    consumer = sim.broker.attach(sim.now_ms, "t", "g", "o")
    served = []
    for _ in range(6):
        [delivery] = sim.broker.effects.deliveries
        served.append(delivery.partition)
        sim.broker.effects.deliveries = []
        sim.broker.sent(sim.now_ms, consumer)
    assert served == [0, 1, 2, 0, 1, 2]
