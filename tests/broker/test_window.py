"""Streams get what their consumers can settle in time, and streams that settle nothing get nothing new."""

from __future__ import annotations

import logging
import random
from collections import deque
from typing import Any

import pytest

from slipstream.broker import BrokerConfig, Consumer, Envelope, FailedPrecondition, NewMessage, RetryPolicy, TopicConfig
from slipstream.broker.window import WINDOW_START, Window
from tests.broker.simulator import Simulator

LEASE_MS = 2_000


def stored(count: int, **topic: Any) -> Simulator:
    sim = Simulator()
    sim.create(**topic)
    for _ in range(count):
        sim.produce()
    return sim


def held(consumer: Consumer) -> int:
    return len([lease for p in consumer.group.progress for lease in p.leases.values() if lease.consumer is consumer])


def work_serially(sim: Simulator, count: int, takes_ms: int, owner: str = "o") -> list[int]:
    """Run a worker that handles one message at a time, as a DriftQ worker does; return the attempts of its runs."""
    queue: deque[tuple[int, int]] = deque()
    runs: list[int] = []
    sim.attach(owner, lease_ms=LEASE_MS)
    acked: set[int] = set()
    while len(acked) < count:
        queue += [(offset, attempts) for offset, attempts, taker in sim.take() if taker == owner]
        assert queue, f"the worker is idle, and {count - len(acked)} messages are left"
        offset, attempts = queue.popleft()
        for _ in range(10):
            sim.advance(takes_ms // 10)
        runs.append(attempts)
        sim.ack(offset, owner)
        acked.add(offset)
    return runs


# The window


def test_a_slow_consumer_is_left_with_little_and_a_fast_one_with_much() -> None:
    slow, fast = Window(), Window()
    for settled in range(50):
        slow.note_settled(settled, 400, LEASE_MS)
    for settled in range(300):
        fast.note_settled(max(0, settled - 20), 2, LEASE_MS)
    assert slow.limit <= 2
    assert fast.limit > 250


def test_a_window_follows_a_consumer_with_many_handlers() -> None:
    """Sixteen handlers of 200 ms each: the rate rises with the window, until all of them are busy."""
    sim = stored(1_000, max_in_flight=0)
    consumer = sim.attach(lease_ms=LEASE_MS)
    running: deque[tuple[int, int]] = deque()
    queue: deque[int] = deque()
    for _ in range(400):
        queue += [offset for offset, _, _ in sim.take()]
        while queue and len(running) < 16:
            running.append((sim.now_ms + 200, queue.popleft()))
        sim.advance(10)
        while running and running[0][0] <= sim.now_ms:
            sim.ack(running.popleft()[1])
    assert 16 <= held(consumer) <= 100, "what it settles in half a lease"


def test_a_window_that_was_asked_for_stays() -> None:
    sim = stored(10)
    consumer = sim.broker.attach(sim.now_ms, "t", "g", "o", prefetch=3)
    sim.commit()
    assert len(sim.take()) == 3
    sim.ack(0)
    assert held(consumer) == 3


def test_a_stream_starts_small() -> None:
    sim = stored(100, partitions=4)
    sim.attach()
    assert len(sim.take()) == WINDOW_START


@pytest.mark.parametrize("takes_ms", [10, 100, 500, 1_500])
def test_a_worker_that_handles_one_message_at_a_time_runs_each_once(takes_ms: int) -> None:
    """Its queue is settled in order: the lease of a message behind others ends a lease after the one before."""
    sim = Simulator(BrokerConfig(topic=TopicConfig(retry=RetryPolicy(max_attempts=3))))
    sim.create()
    for _ in range(100):
        sim.produce()
    assert work_serially(sim, 100, takes_ms) == [1] * 100
    assert "dlq.t" not in sim.broker.state.topics


def test_a_message_that_was_overtaken_comes_again_while_its_stream_works_on() -> None:
    sim = stored(3)
    sim.attach(lease_ms=LEASE_MS)
    sim.take()
    sim.ack(0)
    sim.ack(2)
    sim.advance(LEASE_MS)
    sim.advance(100)
    assert sim.take() == [(1, 2, "o")]


def test_partitions_take_turns_message_by_message() -> None:
    sim = Simulator()
    sim.create(partitions=3)
    for partition in range(3):
        for _ in range(4):
            sim.produce(envelope={"partition_override": partition})
    sim.broker.attach(sim.now_ms, "t", "g", "o", prefetch=12)
    sim.commit()
    assert [delivery.partition for delivery in sim.delivered] == [0, 1, 2] * 4


def test_the_partitions_of_one_commit_take_turns_from_the_start() -> None:
    """A consumer that waits for messages does not get one partition's before the others'."""
    sim = Simulator()
    sim.create(partitions=3)
    sim.broker.attach(sim.now_ms, "t", "g", "o", prefetch=6)
    batch = [NewMessage(b"", b"x", Envelope(partition_override=number)) for number in range(3) for _ in range(20)]
    sim.broker.produce_batch(sim.now_ms, "t", batch)
    sim.commit()
    assert [delivery.partition for delivery in sim.delivered] == [0, 1, 2] * 2


# Parked streams


def test_a_stream_that_settles_nothing_destroys_nothing(caplog: pytest.LogCaptureFixture) -> None:
    sim = stored(200, retry=RetryPolicy(max_attempts=3))
    with caplog.at_level(logging.WARNING):
        consumer = sim.attach(lease_ms=LEASE_MS)
        for _ in range(600):
            sim.advance(1_000)
    assert "dlq.t" not in sim.broker.state.topics
    taken = sim.take()
    assert {offset for offset, _, _ in taken} == set(range(WINDOW_START)), "it got nothing new"
    assert len(taken) < WINDOW_START * 2 + 20, "what it let run out comes after longer and longer pauses"
    assert consumer.parked_ms == 1_000_000 + LEASE_MS
    assert consumer.group.parked == 1
    assert len([each for each in caplog.records if "is parked" in each.message]) == 1
    left = 200 - WINDOW_START
    assert work_serially(sim, 200, 10, "healthy")[-left:] == [1] * left


@pytest.mark.parametrize("sign", ["ack", "late ack", "nack", "extend"])
def test_a_parked_stream_goes_on_after_a_sign_of_life(sign: str) -> None:
    sim = stored(8)
    consumer = sim.attach(lease_ms=LEASE_MS)
    sim.advance(LEASE_MS)
    assert consumer.group.parked == 1
    if sign == "late ack":
        sim.pull("other", credit=1)
        sim.advance(100)
        with pytest.raises(FailedPrecondition, match="not owner"):
            sim.ack(0)
    elif sign == "extend":
        sim.broker.extend(sim.now_ms, "t", "g", 0, 0, "o")
    else:
        getattr(sim, sign)(0)
    sim.commit()
    assert consumer.parked_ms is None
    assert consumer.group.parked == 0


def test_a_new_stream_of_the_same_owner_is_not_parked() -> None:
    sim = stored(50)
    parked = sim.attach(lease_ms=LEASE_MS)
    sim.advance(LEASE_MS)
    sim.take()
    sim.broker.detach(sim.now_ms, parked)
    sim.attach(lease_ms=LEASE_MS)
    assert len(sim.take()) == WINDOW_START
    assert sim.broker.group("t", "g").parked == 0


def test_what_a_parked_stream_lets_run_out_goes_to_another_at_once() -> None:
    sim = stored(2)
    sim.attach("silent", lease_ms=LEASE_MS)
    sim.take()
    sim.attach("healthy", lease_ms=LEASE_MS)
    sim.advance(LEASE_MS)
    sim.advance(100)
    assert sim.take() == [(0, 2, "healthy"), (1, 2, "healthy")]


def test_a_message_that_kills_every_worker_still_dies() -> None:
    sim = stored(20, retry=RetryPolicy(max_attempts=4, backoff_ms=100))
    kills = 0
    for _ in range(200):
        consumer = sim.attach(lease_ms=LEASE_MS)
        queue = deque(offset for offset, _, _ in sim.take())
        while queue and queue[0]:
            sim.ack(queue.popleft())
            queue += [offset for offset, _, _ in sim.take()]
        kills += bool(queue)
        sim.broker.detach(sim.now_ms, consumer)
        sim.advance(LEASE_MS)
    assert kills == 4
    assert sim.broker.topic("dlq.t").partitions[0].count == 1, "it takes no others with it"
    assert sim.broker.group("t", "g").progress[0].lag == 0


def test_an_attempt_in_silent_hands_counts_once_also_after_a_restart() -> None:
    sim = stored(1, retry=RetryPolicy(max_attempts=3))
    sim.attach(lease_ms=LEASE_MS)
    for _ in range(60):
        sim.advance(1_000)
    sim.crash()
    sim.take()
    sim.advance(60_000)
    sim.attach(lease_ms=LEASE_MS)
    [(offset, attempts, _)] = sim.take()
    assert (offset, attempts > 3) == (0, True), "each delivery is counted"
    sim.nack(0)
    assert "dlq.t" not in sim.broker.state.topics, "two of them count towards the limit"
    sim.advance(100)
    sim.nack(0)
    assert sim.broker.topic("dlq.t").partitions[0].count == 1


def test_with_pacing_off_a_stream_gets_what_the_partition_allows_and_is_never_parked() -> None:
    sim = Simulator(BrokerConfig(pace_streams=False))
    sim.create()
    for _ in range(50):
        sim.produce()
    consumer = sim.attach(lease_ms=LEASE_MS)
    assert len(sim.take()) == 50
    sim.advance(LEASE_MS)
    sim.advance(100)
    assert len(sim.take()) == 50
    assert consumer.parked_ms is None
    asked = sim.broker.attach(sim.now_ms, "t", "asked", "o", LEASE_MS, prefetch=4)
    sim.commit()
    sim.take()
    sim.advance(LEASE_MS)
    assert asked.held == 4
    assert asked.parked_ms is None


def test_a_stream_that_falls_silent_again_after_a_late_ack_gets_its_messages_again() -> None:
    """Of two messages that ran out at different times, the ack of the first came between."""
    sim = stored(1)
    sim.attach(lease_ms=LEASE_MS)
    sim.advance(LEASE_MS - 100)
    sim.produce()
    sim.advance(100)
    sim.advance(50)
    sim.ack(0)
    sim.take()
    for _ in range(10):
        sim.advance(1_000)
    assert {offset for offset, _, _ in sim.take()} == {1}


@pytest.mark.parametrize("seed", range(5))
def test_a_worker_that_is_now_and_then_slower_than_its_lease_gets_everything_done(seed: int) -> None:
    chance = random.Random(seed)
    sim = Simulator()
    sim.create()
    sim.attach(lease_ms=LEASE_MS)
    queue: deque[int] = deque()
    for _ in range(1_000):
        if chance.random() < 0.5:
            sim.produce()
        queue += [offset for offset, _, _ in sim.take()]
        if queue:
            for _ in range(chance.choice([1, 2, 5, 15, 25])):
                sim.advance(100)
            sim.ack(queue.popleft())
    for _ in range(2_000):
        sim.advance(100)
        for offset, _, _ in sim.take():
            sim.ack(offset)
    assert sim.broker.group("t", "g").progress[0].lag == 0


def test_a_parked_stream_is_offered_what_ran_out_whatever_waits_in_other_partitions() -> None:
    sim = Simulator()
    sim.create(partitions=2)
    sim.attach(lease_ms=LEASE_MS)
    sim.produce(envelope={"partition_override": 1})
    sim.take()
    sim.advance(LEASE_MS)
    sim.produce(envelope={"partition_override": 0})
    for _ in range(60):
        sim.advance(1_000)
    taken = [offset for offset, _, _ in sim.take()]
    assert set(taken) == {0}, "and nothing new"
    assert len(taken) > 3


def test_a_parked_stream_is_offered_what_a_consumer_that_has_gone_let_run_out() -> None:
    sim = stored(1)
    gone = sim.attach("gone", lease_ms=3 * LEASE_MS)
    sim.broker.detach(sim.now_ms, gone)
    sim.attach(lease_ms=LEASE_MS)
    sim.produce()
    sim.take()
    for _ in range(60):
        sim.advance(1_000)
    assert {offset for offset, _, _ in sim.take()} == {0, 1}


def test_a_sign_of_life_wakes_the_stream_it_came_from_and_no_other_of_its_owner(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A connection that is half open shares the owner's name with the one that replaced it."""
    sim = stored(0)
    half_open = sim.attach(lease_ms=LEASE_MS)
    works = sim.attach(lease_ms=LEASE_MS)
    with caplog.at_level(logging.WARNING):
        for _ in range(100):
            sim.produce()
            sim.produce()
            for delivery in sim.delivered:
                if delivery.consumer is works:
                    sim.ack(delivery.record.offset)
            sim.take()
            sim.advance(500)
    assert half_open.parked_ms is not None
    assert len([each for each in caplog.records if "is parked" in each.message]) == 1


@pytest.mark.parametrize("ends", ["with its stream", "with the broker"])
def test_of_what_was_on_lease_at_an_end_one_message_counts_as_attempted(ends: str) -> None:
    sim = stored(16, retry=RetryPolicy(max_attempts=1))
    consumer = sim.attach(lease_ms=LEASE_MS)
    if ends == "with the broker":
        sim.crash()
    else:
        sim.broker.detach(sim.now_ms, consumer)
    sim.advance(LEASE_MS)
    assert sim.broker.topic("dlq.t").partitions[0].count == 1
    assert sim.broker.group("t", "g").progress[0].lag == 15


@pytest.mark.parametrize("sign", ["ack", "extend"])
def test_what_a_slow_stream_does_not_come_to_goes_to_one_that_is_free(sign: str) -> None:
    sim = stored(16, retry=RetryPolicy(max_attempts=1))
    sim.attach("slow", lease_ms=LEASE_MS)
    sim.attach("free", lease_ms=LEASE_MS)
    sim.take()
    sim.advance(LEASE_MS // 2)
    if sign == "ack":
        sim.ack(0, "slow")
    else:
        sim.broker.extend(sim.now_ms, "t", "g", 0, 0, "slow")
        sim.commit()
    sim.advance(LEASE_MS // 2)
    first = {"ack": 5, "extend": 1}[sign]
    assert {offset for offset, _, owner in sim.take() if owner == "free"} == set(range(first, 16))
    assert "dlq.t" not in sim.broker.state.topics, "it has not been attempted"


# Pulls


def test_a_pull_gets_less_after_leases_of_the_one_before_ran_out() -> None:
    sim = stored(100)
    sim.pull(credit=20, lease_ms=LEASE_MS)
    for offset in range(10):
        sim.ack(offset)
    sim.advance(LEASE_MS)
    sim.advance(100)
    sim.take()
    sim.pull(credit=20, lease_ms=LEASE_MS)
    first = sim.take()
    assert len(first) == 5
    for offset, _, _ in first:
        sim.ack(offset)
    sim.pull(credit=20, lease_ms=LEASE_MS)
    assert len(sim.take()) == 10


def test_what_waited_behind_a_message_that_hangs_its_stream_has_not_been_attempted() -> None:
    sim = stored(3, retry=RetryPolicy(max_attempts=1))
    sim.attach(lease_ms=LEASE_MS)
    sim.advance(LEASE_MS)
    letters = sim.broker.topic("dlq.t").partitions[0]
    assert [letters.log.read(index).value for index in range(letters.count)] == [b"v"], "the first one had its attempt"
    assert sim.broker.group("t", "g").progress[0].lag == 2


def test_after_a_seek_nothing_is_held_against_a_parked_stream() -> None:
    sim = stored(3)
    consumer = sim.attach(lease_ms=LEASE_MS)
    sim.advance(LEASE_MS)
    assert consumer.group.parked == 1
    sim.take()
    sim.broker.seek(sim.now_ms, "t", "g", lambda partition: partition.first_index)
    sim.commit()
    assert {attempts for _, attempts, _ in sim.take()} == {1}
    assert consumer.group.parked == 0


# Retries that wait


def test_messages_that_wait_for_another_attempt_do_not_hold_up_those_behind_them() -> None:
    sim = Simulator(BrokerConfig(topic=TopicConfig(max_in_flight=4, retry=RetryPolicy(0, 60_000))))
    sim.create()
    for _ in range(300):
        sim.produce()
    sim.broker.attach(sim.now_ms, "t", "g", "o", prefetch=4)
    sim.commit()
    for offset in range(256):
        sim.nack(offset, reason="poison")
    sim.take()
    assert [offset for offset in range(256, 300) if offset in sim.broker.group("t", "g").progress[0].leases]
    for offset in range(256, 300):
        sim.ack(offset)
    progress = sim.broker.group("t", "g").progress[0]
    assert progress.retrying == 256
    sim.crash()
    assert sim.broker.group("t", "g").progress[0].retrying == 256


def test_the_memory_for_waiting_retries_is_bounded() -> None:
    sim = Simulator(BrokerConfig(delayed_max=10, topic=TopicConfig(retry=RetryPolicy(0, 60_000))))
    sim.create()
    for _ in range(50):
        sim.produce()
    sim.broker.attach(sim.now_ms, "t", "g", "o", prefetch=1)
    sim.commit()
    while taken := sim.take():
        for offset, _, _ in taken:
            sim.nack(offset)
    progress = sim.broker.group("t", "g").progress[0]
    assert progress.retrying == 10
    sim.advance(60_000)
    sim.ack(0)
    assert [offset for offset, _, _ in sim.take()][:1] == [0]


# Whose retry policy


def test_the_policy_of_the_message_the_handler_the_group_and_the_topic_hold_in_this_order() -> None:
    def attempts(*, message: int = 0, handler: int = 0, group: int = 0) -> int:
        sim = Simulator()
        sim.create(retry=RetryPolicy(max_attempts=5))
        if group:
            sim.broker.set_group_retry(sim.now_ms, "t", "g", RetryPolicy(max_attempts=group))
        sim.produce(envelope={"retry_policy": {"max_attempts": message}} if message else None)
        retry = RetryPolicy(max_attempts=handler) if handler else None
        sim.broker.attach(sim.now_ms, "t", "g", "o", retry=retry)
        sim.commit()
        sim.crash()
        sim.broker.attach(sim.now_ms, "t", "g", "o", retry=retry)
        count = 0
        while "dlq.t" not in sim.broker.state.topics:
            sim.nack(0)
            count += 1
        return count

    assert attempts() == 5
    assert attempts(group=4) == 4
    assert attempts(group=4, handler=3) == 3
    assert attempts(group=4, handler=3, message=2) == 2
