"""Timers, damaged logs and limits of the dispatcher: what must not stop, spin or grow."""

from __future__ import annotations

import datetime as dt

import pytest

from slipstream.broker import (
    BrokerConfig,
    InvalidArgument,
    NewMessage,
    RetryPolicy,
    TopicConfig,
    Unavailable,
    decode_meta,
)
from slipstream.broker.changes import Delivered, DeliveredRun
from slipstream.broker.lease import Lease
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
    """Ruling 7: the dead letter frees memory for what waits behind it, and no command comes by to look."""
    sim = Simulator(BrokerConfig(delayed_max=1, topic=TopicConfig(retry=RetryPolicy(0, 3_600_000))))
    sim.create()
    sim.produce(envelope=deadline(sim, 5_000))
    sim.attach()
    sim.nack(0)
    sim.produce()
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


def test_a_deadline_that_passes_costs_the_same_however_much_a_group_holds() -> None:
    sim = Simulator()
    sim.create()
    for _ in range(3):
        sim.produce(envelope=deadline(sim, 5_000))
    sim.attach(lease_ms=60_000, credit=2)
    sim.nack(0, delay_ms=60_000)
    progress = sim.broker.topic("t").groups["g"].progress[0]
    looked_at = 0

    class Counting(dict[int, Lease]):
        def values(self):  # type: ignore[no-untyped-def]
            nonlocal looked_at
            looked_at += len(self)
            return super().values()

    progress.leases, progress.postponed = Counting(progress.leases), Counting(progress.postponed)
    sim.advance(5_000)
    assert (list(progress.leases), list(progress.postponed), list(progress.finished_ahead)) == ([1], [], [2])
    assert looked_at == 0


def test_a_consumer_is_handed_one_window_at_a_time() -> None:
    sim = Simulator(BrokerConfig(stream_window_bytes=10, pace_streams=False))
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


# Messages that are not due yet


def test_a_delayed_message_is_delivered_when_it_is_due_and_not_before() -> None:
    sim = Simulator()
    sim.create()
    sim.attach()
    sim.produce(delay_ms=1_000)
    assert sim.take() == []
    sim.advance(999)
    assert sim.take() == []
    sim.advance(1)
    assert sim.take() == [(0, 1, "o")]


def test_what_comes_behind_a_delayed_message_goes_first() -> None:
    sim = Simulator()
    sim.create()
    sim.attach()
    sim.produce(delay_ms=1_000)
    sim.produce(delay_ms=500)
    sim.produce()
    assert sim.take() == [(2, 1, "o")]
    sim.advance(1_000)
    assert sim.take() == [(1, 1, "o"), (0, 1, "o")], "in the order they are due"


def test_a_delayed_message_is_not_forgotten_when_an_earlier_one_came_due_while_nobody_read() -> None:
    """Its timer was the earlier one's, which found nobody; whoever comes then has to set it again."""
    sim = Simulator()
    sim.create()
    early = sim.attach("early", lease_ms=3_600_000)
    sim.produce(delay_ms=10)
    sim.produce(delay_ms=20)
    sim.broker.detach(sim.now_ms, early)
    sim.advance(10)
    sim.attach("late", lease_ms=3_600_000)
    assert sim.take() == [(0, 1, "late")]
    sim.advance(10)
    assert sim.take() == [(1, 1, "late")]


def test_a_delayed_message_is_not_forgotten_when_an_earlier_one_dies_while_nobody_reads() -> None:
    sim = Simulator()
    sim.create()
    early = sim.attach("early")
    sim.produce(envelope=deadline(sim, 15), delay_ms=10)
    sim.produce(delay_ms=20)
    sim.broker.detach(sim.now_ms, early)
    sim.advance(10)
    sim.advance(5)
    sim.attach("late")
    assert sim.take() == []
    sim.advance(5)
    assert sim.take() == [(1, 1, "late")]


@pytest.mark.parametrize("held_up_by", ["no consumer", "the group's limit", "a pause"])
def test_what_is_due_and_cannot_be_delivered_does_not_keep_the_clock_busy(held_up_by: str) -> None:
    sim = Simulator(BrokerConfig(topic=TopicConfig(max_in_flight=1)))
    sim.create()
    consumer = sim.attach(lease_ms=3_600_000)
    sim.produce(delay_ms=10)
    if held_up_by == "no consumer":
        sim.broker.detach(sim.now_ms, consumer)
    elif held_up_by == "a pause":
        sim.broker.pause(sim.now_ms, "t", "g", paused=True)
        sim.commit()
    else:
        sim.produce()
    sim.advance(10)
    due_ms = sim.broker.next_due_ms()
    assert due_ms is None or due_ms > sim.now_ms
    assert (0, 1, "o") not in sim.take()


def test_a_delayed_message_that_is_due_goes_out_when_the_group_has_room_again() -> None:
    sim = Simulator(BrokerConfig(topic=TopicConfig(max_in_flight=1)))
    sim.create()
    sim.attach(lease_ms=3_600_000)
    sim.produce(delay_ms=10)
    sim.produce()
    sim.advance(10)
    assert sim.take() == [(1, 1, "o")]
    sim.ack(1)
    assert sim.take() == [(0, 1, "o")]


def test_a_group_looks_past_so_many_delayed_messages_and_no_more() -> None:
    sim = Simulator(BrokerConfig(delayed_max=2))
    sim.create()
    sim.attach()
    for delay_ms in (30, 10, 20):
        sim.produce(delay_ms=delay_ms)
    sim.produce()
    assert sim.take() == [], "it waits behind the second"
    sim.advance(10)
    assert sim.take() == [(1, 1, "o"), (3, 1, "o")], "one was due, so there is room to look past the third"
    sim.advance(10)
    sim.advance(10)
    assert sim.take() == [(2, 1, "o"), (0, 1, "o")]


def test_a_delayed_message_that_was_never_delivered_cannot_be_acked() -> None:
    """Ruling 3. The group has passed it, and yet nobody has seen it."""
    sim = Simulator()
    sim.create()
    sim.attach()
    sim.produce(delay_ms=1_000)
    sim.produce()
    for settle in (sim.ack, sim.nack):
        with pytest.raises(InvalidArgument, match="never delivered"):
            settle(0)
    sim.advance(1_000)
    assert sim.take() == [(1, 1, "o"), (0, 1, "o")]


def test_the_watermark_stays_below_what_is_not_due() -> None:
    sim = Simulator()
    sim.create()
    sim.attach()
    sim.produce()
    sim.produce(delay_ms=1_000)
    sim.produce()
    progress = sim.broker.topic("t").groups["g"].progress[0]
    for offset in (0, 2):
        sim.ack(offset)
    assert (progress.watermark, progress.lag) == (0, 1)
    sim.advance(1_000)
    sim.ack(1)
    assert (progress.watermark, progress.lag) == (2, 0)


def test_a_delayed_message_dies_of_its_deadline_if_nobody_can_take_it() -> None:
    sim = Simulator()
    sim.create()
    consumer = sim.attach()
    sim.produce(envelope=deadline(sim, 20), delay_ms=10)
    sim.broker.detach(sim.now_ms, consumer)
    sim.advance(10)
    sim.advance(10)
    assert sim.broker.topic("dlq.t").partitions[0].count == 1
    assert sim.broker.topic("t").groups["g"].progress[0].lag == 0
    sim.attach()
    assert sim.take() == []


def test_the_first_delivery_of_a_delayed_message_is_no_redelivery() -> None:
    sim = Simulator()
    sim.create()
    sim.attach()
    sim.produce(delay_ms=10)
    sim.advance(10)
    assert (sim.broker.dispatcher.delivered_total, sim.broker.dispatcher.redelivered_total) == (1, 0)


@pytest.mark.parametrize("checkpoint", [False, True])
def test_delayed_messages_outlive_a_restart(checkpoint: bool) -> None:
    sim = Simulator()
    sim.create()
    sim.attach()
    for delay_ms in (1_000, 2_000, 3_000):
        sim.produce(delay_ms=delay_ms)
    if checkpoint:
        sim.checkpoint()
    sim.now_ms += 1_500
    sim.crash()
    sim.attach("new")
    assert sim.take() == [(0, 1, "new")], "due while the broker was down"
    sim.advance(500)
    assert sim.take() == [(1, 1, "new")]
    sim.advance(1_000)
    assert (2, 1, "new") in sim.take()


def test_retention_takes_delayed_messages_too_and_the_group_goes_on() -> None:
    sim = Simulator()
    sim.create()
    sim.attach()
    sim.produce(b"12", delay_ms=10)
    sim.produce(b"345", delay_ms=20)
    partition = sim.broker.topic("t").partitions[0]
    assert sim.broker.trim(sim.now_ms, partition, 1, 2, 1) == 1
    progress = partition.topic.groups["g"].progress[0]
    assert (progress.done, progress.done_bytes, progress.group.lost) == (1, 2, 1)
    sim.advance(10)
    assert sim.take() == []
    sim.advance(10)
    assert sim.take() == [(1, 1, "o")]


# Nacks that say more


def test_a_nack_may_say_when_the_next_attempt_is_due() -> None:
    sim = Simulator(BrokerConfig(topic=TopicConfig(retry=RetryPolicy(0, 100, 100))))
    sim.create()
    sim.produce()
    sim.attach()
    sim.take()
    sim.nack(0, delay_ms=5_000)
    sim.advance(4_999)
    assert sim.take() == []
    sim.advance(1)
    assert sim.take() == [(0, 2, "o")]
    sim.nack(0, delay_ms=0)
    assert sim.take() == [(0, 3, "o")], "0 means at once, not by the policy"
    sim.nack(0)
    sim.advance(99)
    assert sim.take() == []
    sim.advance(1)
    assert sim.take() == [(0, 4, "o")]


def test_a_nack_that_is_not_counted_leaves_attempts_as_they_were_over_a_restart() -> None:
    sim = Simulator(BrokerConfig(topic=TopicConfig(retry=RetryPolicy(max_attempts=2))))
    sim.create()
    sim.produce()
    sim.attach()
    for _ in range(5):
        assert sim.take() == [(0, 1, "o")]
        sim.nack(0, reason="the host is busy", delay_ms=100, counted=False)
        sim.crash()
        sim.attach()
        sim.advance(100)
    sim.nack(0, reason="boom", delay_ms=0)
    assert [(each.attempts, each.last_error) for each in sim.delivered] == [(1, ""), (2, "boom")]
    sim.nack(0, reason="not now", delay_ms=0, counted=False)
    assert "dlq.t" not in sim.broker.state.topics, "an attempt that was not made is not the last one"
    sim.nack(0, reason="boom", delay_ms=0)
    assert "dlq.t" in sim.broker.state.topics


def test_the_delay_of_a_nack_outlives_a_restart() -> None:
    sim = Simulator()
    sim.create()
    sim.produce()
    sim.attach()
    sim.nack(0, delay_ms=60_000)
    sim.take()
    sim.crash()
    sim.attach()
    sim.advance(59_999)
    assert sim.take() == []
    sim.advance(1)
    assert sim.take() == [(0, 2, "o")]


def test_a_message_that_no_attempt_would_help_dies_at_once() -> None:
    sim = Simulator()
    sim.create()
    sim.produce(b"bad")
    sim.produce(b"good")
    sim.attach()
    sim.nack(0, reason="cannot be read", retryable=False)
    [partition] = sim.broker.topic("dlq.t").partitions
    envelope = decode_meta(partition.log.read(0).meta).envelope
    assert envelope is not None
    assert envelope.dlq is not None
    assert (envelope.dlq.reason, envelope.dlq.last_error, envelope.dlq.attempts) == ("rejected", "cannot be read", 1)
    assert sim.broker.state.dead_lettered == {("t", "rejected"): 1}
    sim.crash()
    sim.take()
    sim.attach()
    sim.advance(60_000)
    assert 0 not in [offset for offset, _, _ in sim.take()]


def test_a_dead_letter_that_is_rejected_is_tried_again() -> None:
    """It never dies again (ruling 6), and to lose it would be worse than to see it once more."""
    sim = Simulator()
    sim.create()
    sim.produce()
    sim.attach()
    sim.nack(0, retryable=False)
    sim.take()
    sim.attach(topic="dlq.t")
    sim.nack(0, topic="dlq.t", retryable=False)
    sim.advance(60_000)
    assert sim.take() == [(0, 1, "o"), (0, 2, "o")]
    assert "dlq.dlq.t" not in sim.broker.state.topics


# Who asks for so many bytes


def test_a_pull_gets_no_more_bytes_than_it_asked_for_and_the_next_one_gets_the_rest() -> None:
    sim = Simulator()
    sim.create()
    for _ in range(5):
        sim.produce(b"1234")
    assert [len(sim.pull(window_bytes=size).sink.taken) for size in (9, 8)] == [2, 2]  # type: ignore[attr-defined]
    assert [offset for offset, _, _ in sim.take()] == [0, 1, 2, 3]


def test_a_pull_gets_the_first_message_however_large_it_is() -> None:
    sim = Simulator()
    sim.create()
    sim.produce(b"x" * 100)
    sim.produce(b"y")
    sim.pull(window_bytes=10)
    assert sim.take() == [(0, 1, "o")]


def test_a_message_too_large_for_one_who_pulls_goes_to_another() -> None:
    sim = Simulator()
    sim.create()
    sim.broker.attach(sim.now_ms, "t", "g", "small", credit=10, window_bytes=10)
    sim.broker.attach(sim.now_ms, "t", "g", "large", credit=10, window_bytes=1_000)
    for size in (5, 5, 6, 6):
        sim.broker.produce(sim.now_ms, "t", b"", b"x" * size)
    sim.commit()
    assert sim.take() == [(0, 1, "small"), (1, 1, "large"), (2, 1, "large"), (3, 1, "large")]


# Groups that are moved, stopped and forgotten


def test_nothing_is_delivered_to_a_paused_group_and_everything_when_it_is_resumed() -> None:
    sim = Simulator(BrokerConfig(topic=TopicConfig(retry=RetryPolicy(0, 100, 100))))
    sim.create()
    sim.attach()
    sim.produce()
    sim.take()
    sim.broker.pause(sim.now_ms, "t", "g", paused=True)
    sim.commit()
    sim.nack(0)
    sim.produce()
    sim.produce(delay_ms=50)
    sim.attach("another")
    sim.advance(10_000)
    assert sim.take() == []
    sim.crash()
    sim.attach()
    assert sim.take() == [], "a pause outlives a restart"
    sim.broker.pause(sim.now_ms, "t", "g", paused=False)
    sim.commit()
    assert sorted(sim.take()) == [(0, 2, "o"), (1, 1, "o"), (2, 1, "o")]


def test_what_a_paused_group_holds_can_be_finished() -> None:
    sim = Simulator()
    sim.create()
    sim.attach()
    sim.produce()
    sim.broker.pause(sim.now_ms, "t", "g", paused=True)
    sim.ack(0)
    assert sim.broker.topic("t").groups["g"].progress[0].lag == 0


def test_a_pause_that_doubles_without_end_ends_with_the_year_9999() -> None:
    """Past 64 bits it could not be journalled, and the clock that found so would have stopped for everybody."""
    sim = Simulator(BrokerConfig(topic=TopicConfig(retry=RetryPolicy(backoff_ms=2**53))))
    sim.create()
    sim.produce()
    sim.attach()
    for _ in range(60):
        sim.nack(0, delay_ms=0)
    sim.advance(10_000)  # the lease runs out
    lease = sim.broker.topic("t").groups["g"].progress[0].postponed[0]
    assert dt.datetime.fromtimestamp(lease.until_ms / 1000, dt.UTC).year == 9999
    sim.broker.snapshot()


def test_what_one_consumer_gets_together_is_one_change() -> None:
    sim = Simulator()
    sim.create("t")
    for _ in range(3):
        sim.produce(b"v")
    start = len(sim.journal)
    sim.attach(owner="o")
    [run] = sim.written(start, Delivered, DeliveredRun)
    assert isinstance(run, DeliveredRun)
    assert [(each.offset, each.attempts, each.owner) for each in run.delivered()] == [(n, 1, "o") for n in range(3)]


def test_a_run_ends_with_its_consumer_and_with_a_second_attempt() -> None:
    sim = Simulator()
    sim.create("t")
    sim.attach(owner="a")
    sim.attach(owner="b")
    start = len(sim.journal)
    sim.broker.produce_batch(sim.now_ms, "t", [NewMessage(b"", b"v")] * 4)
    sim.commit()
    owners = [change.owner for change in sim.written(start, Delivered) if isinstance(change, Delivered)]
    assert owners == ["a", "b", "a", "b"]
    start = len(sim.journal)
    sim.advance(2_000)
    sim.advance(100)
    again = sim.written(start, Delivered, DeliveredRun)
    assert [(c.offset, c.attempts) for c in again if isinstance(c, Delivered)] == [(n, 2) for n in range(4)]


def test_one_owner_with_leases_of_two_lengths_keeps_both_across_a_restart() -> None:
    sim = Simulator()
    sim.create("t")
    sim.attach(lease_ms=1_000)
    sim.attach(lease_ms=5_000)
    sim.broker.produce_batch(sim.now_ms, "t", [NewMessage(b"", b"v") for _ in range(4)])
    sim.commit()

    def ends() -> list[int]:
        return [lease.until_ms - sim.now_ms for lease in sim.broker.group("t", "g").progress[0].leases.values()]

    assert sorted(ends()) == [1_000, 1_000, 5_000, 5_000]
    before = ends()
    sim.crash()
    assert ends() == before
