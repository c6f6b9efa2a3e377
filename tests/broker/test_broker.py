"""Commands that take many messages at once."""

from __future__ import annotations

import pytest

from slipstream.broker import BrokerConfig, FailedPrecondition, Overloaded, TopicConfig
from slipstream.broker.changes import Finished, FinishedBatch
from tests.broker.simulator import At, Simulator


def test_acks_of_a_batch_are_one_change_a_partition_and_each_stands_for_itself() -> None:
    sim = Simulator()
    sim.create("t", 2)
    for key in (b"user:1", b"user:2", b"user:1"):
        sim.produce(b"v", key=key)
    sim.attach()
    numbers = {delivery.record.offset: delivery.partition for delivery in sim.delivered}
    places = [At(numbers[offset], offset) for offset in (0, 1, 2)]
    start = len(sim.journal)
    refused = sim.ack_batch([*places, places[0], At(0, 99), At(7, 0)])
    assert refused == [At(0, 99), At(7, 0)]
    batches = sim.written(start, Finished, FinishedBatch)
    assert sorted(batch.offsets for batch in batches if isinstance(batch, FinishedBatch)) == [[0, 2], [1]]
    assert len(batches) == 2
    assert sim.broker.acked_total == 3
    assert [progress.lag for progress in sim.broker.group("t", "g").progress] == [0, 0]
    sim.crash()
    assert [progress.lag for progress in sim.broker.group("t", "g").progress] == [0, 0]


def test_acks_of_a_batch_let_the_next_through() -> None:
    sim = Simulator(BrokerConfig(topic=TopicConfig(max_in_flight=2)))
    sim.create("t")
    for _ in range(4):
        sim.produce(b"v")
    sim.attach()
    assert [offset for offset, _, _ in sim.take()] == [0, 1]
    assert sim.ack_batch([At(0, 0), At(0, 1)], "stranger") == [At(0, 0), At(0, 1)]
    assert sim.take() == []
    assert sim.ack_batch([At(0, 1), At(0, 0)]) == []
    assert [offset for offset, _, _ in sim.take()] == [2, 3]


@pytest.mark.parametrize(("dead_letters", "said"), [(True, r"dead letters in dlq\.t$"), (False, "t keeps no dead")])
def test_the_late_ack_of_a_message_that_was_given_up_says_where_it_is(dead_letters: bool, said: str) -> None:
    sim = Simulator()
    sim.create("t", dead_letters=dead_letters)
    sim.produce(b"v", envelope={"retry_policy": {"max_attempts": 1}})
    sim.attach(lease_ms=10)
    sim.advance(10)
    with pytest.raises(FailedPrecondition, match=said):
        sim.ack(0)


def test_acks_that_are_all_refused_are_no_use_of_the_group() -> None:
    """As each on its own is none: who only guesses must not keep producers waiting for a group that has gone."""
    sim = Simulator(BrokerConfig(group_absent_ms=5_000, topic=TopicConfig(max_waiting_messages=1)))
    sim.create("t")
    sim.broker.detach(sim.now_ms, sim.attach())
    sim.produce(b"v")
    sim.now_ms += 5_001
    assert sim.ack_batch([At(0, 0), At(7, 0)]) == [At(0, 0), At(7, 0)]
    sim.produce(b"v")
    sim.broker.detach(sim.now_ms, sim.attach(credit=1))
    sim.now_ms += 5_001
    assert sim.ack_batch([At(7, 0), At(0, 0)]) == [At(7, 0)]
    with pytest.raises(Overloaded):
        sim.produce(b"v")
