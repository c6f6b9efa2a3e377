"""Groups that are moved, forgotten and found again in a topic that grows; topics that are deleted and come back."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from slipstream.broker import (
    BrokerConfig,
    FailedPrecondition,
    Group,
    InvalidArgument,
    NotFound,
    Partition,
    RetryPolicy,
    TopicConfig,
    TopicOverrides,
    Unavailable,
)
from slipstream.record import LogUnreadable
from tests.broker.simulator import Simulator


def earliest(partition: Partition) -> int:
    return partition.first_index


def latest(partition: Partition) -> int:
    return partition.committed


def seek(sim: Simulator, find: Callable[[Partition], int], group: str = "g", partition: int | None = None) -> Group:
    moved = sim.broker.seek(sim.now_ms, "t", group, find, partition)
    sim.commit()
    return moved


def offsets(sim: Simulator) -> list[int]:
    return [offset for offset, _, _ in sim.take()]


# Seek


def test_a_group_that_is_sent_back_reads_again_and_one_sent_forward_skips() -> None:
    sim = Simulator()
    sim.create()
    for _ in range(4):
        sim.produce()
    sim.attach()
    for offset in offsets(sim):
        sim.ack(offset)
    seek(sim, lambda partition: partition.log.index_from(2))
    assert offsets(sim) == [2, 3]
    seek(sim, earliest)
    assert sim.take() == [(offset, 1, "o") for offset in range(4)], "as if for the first time"
    seek(sim, latest)
    sim.produce()
    assert offsets(sim) == [4]


def test_a_group_can_be_sent_to_a_time() -> None:
    sim = Simulator()
    sim.create()
    for _ in range(3):
        sim.produce()
        sim.now_ms += 1_000
    group = seek(sim, lambda partition: partition.log.index_at(sim.now_ms - 2_000))
    assert group.progress[0].position == 1


def test_one_partition_can_be_moved_alone() -> None:
    sim = Simulator()
    sim.create(partitions=2)
    for key in (b"user:1", b"user:2", b"user:1"):
        sim.produce(key=key)
    sim.attach()
    first = sim.broker.group("t", "g").progress
    for offset in offsets(sim):
        sim.ack(offset, partition=0 if offset in first[0].leases else 1)
    there = [progress.position for progress in first]
    seek(sim, earliest, partition=1)
    assert [progress.partition.number for progress in first if progress.leases] == ([1] if there[1] else [])
    with pytest.raises(NotFound, match="partitions 0 to 1"):
        seek(sim, earliest, partition=2)


def test_a_group_may_be_sent_somewhere_before_it_has_ever_read() -> None:
    sim = Simulator()
    sim.create()
    sim.produce()
    seek(sim, latest, "new")
    sim.crash()
    sim.attach(group="new")
    assert offsets(sim) == []
    sim.produce()
    assert offsets(sim) == [1]


def test_who_held_a_message_before_the_seek_cannot_settle_it() -> None:
    sim = Simulator()
    sim.create()
    sim.produce()
    consumer = sim.attach()
    sim.broker.detach(sim.now_ms, consumer)
    seek(sim, earliest)
    with pytest.raises(InvalidArgument, match="never delivered"):
        sim.ack(0)
    sim.take()
    sim.attach("another")
    with pytest.raises(FailedPrecondition, match="not owner"):
        sim.ack(0)
    assert offsets(sim) == [0]


def test_the_timers_of_what_was_held_do_nothing_after_a_seek() -> None:
    sim = Simulator(BrokerConfig(topic=TopicConfig(retry=RetryPolicy(1))))
    sim.create()
    sim.produce()
    sim.produce(delay_ms=500)
    sim.attach()
    seek(sim, latest)
    sim.take()
    sim.advance(60_000)
    assert offsets(sim) == []
    assert "dlq.t" not in sim.broker.state.topics
    assert sim.broker.next_due_ms() is None


def test_a_seek_goes_no_further_than_what_is_there() -> None:
    sim = Simulator()
    sim.create()
    for _ in range(3):
        sim.produce()
    sim.broker.trim(sim.now_ms, sim.broker.topic("t").partitions[0], 1, 1, 1)
    sim.commit()
    for index, position, watermark in ((0, 1, 0), (99, 3, 2)):
        progress = seek(sim, lambda _, index=index: index).progress[0]  # type: ignore[misc]
        assert (progress.position, progress.watermark) == (position, watermark)


def test_a_message_that_is_not_in_the_journal_yet_is_not_skipped() -> None:
    sim = Simulator()
    sim.create()
    sim.broker.produce(sim.now_ms, "t", b"", b"on its way")
    sim.broker.seek(sim.now_ms, "t", "g", latest)
    sim.commit()
    sim.attach()
    assert offsets(sim) == [0]


def test_a_seek_that_finds_the_log_damaged_changes_nothing() -> None:
    sim = Simulator()
    sim.create()

    def damaged(_: Partition) -> int:
        raise LogUnreadable("the segment does not match its checksum")

    with pytest.raises(Unavailable, match="checksum"):
        seek(sim, damaged)
    assert "g" not in sim.broker.topic("t").groups


# Forget


def test_a_forgotten_group_is_refused_and_a_new_one_of_its_name_starts_afresh() -> None:
    sim = Simulator()
    sim.create()
    sim.produce()
    sim.attach()
    sim.broker.pause(sim.now_ms, "t", "g", paused=True)
    sim.broker.begin_once(sim.now_ms, "t", "g", "effect", "o")
    sim.broker.forget_group("t", "g")
    sim.commit()
    sim.take()
    for _ in range(2):
        with pytest.raises(NotFound):
            sim.ack(0)
        sim.crash()
    sim.attach("new")
    assert sim.take() == [(0, 1, "new")]
    assert sim.broker.begin_once(sim.now_ms, "t", "g", "effect", "new"), "what the old one guarded is its own"
    assert sim.broker.group("t", "g").id == 2, "numbers are never given twice"


# Growth


def test_a_group_reads_new_partitions_and_keeps_what_it_holds() -> None:
    sim = Simulator()
    sim.create()
    sim.produce()
    sim.attach()
    sim.broker.change_topic(sim.now_ms, "t", TopicOverrides(), 3)
    sim.commit()
    assert sim.produce(key=b"user:1").partition == 1
    assert offsets(sim) == [0, 1]
    for _ in range(2):
        sim.ack(0)
        sim.ack(1, partition=1)
        assert [progress.lag for progress in sim.broker.group("t", "g").progress] == [0, 0, 0]
        sim.crash()


def test_the_dead_letters_grow_with_their_topic() -> None:
    sim = Simulator()
    sim.create()
    sim.produce()
    sim.attach()
    sim.nack(0, retryable=False)
    sim.broker.change_topic(sim.now_ms, "t", TopicOverrides(), 3)
    sim.commit()
    sim.produce(key=b"user:1")
    sim.nack(1, partition=1, retryable=False)
    for _ in range(2):
        assert [partition.count for partition in sim.broker.topic("dlq.t").partitions] == [1, 1, 0]
        sim.crash()


def test_a_topic_never_shrinks_and_dead_letters_do_not_grow_alone() -> None:
    sim = Simulator()
    sim.create(partitions=2)
    sim.create("dlq.t")
    with pytest.raises(InvalidArgument, match="never fewer"):
        sim.broker.change_topic(sim.now_ms, "t", TopicOverrides(), 1)
    with pytest.raises(InvalidArgument, match="as many partitions as"):
        sim.broker.change_topic(sim.now_ms, "dlq.t", TopicOverrides(), 3)
    assert not sim.broker.effects.changes


def test_a_change_of_settings_outlives_a_restart() -> None:
    sim = Simulator()
    sim.create(max_in_flight=5)
    sim.broker.change_topic(sim.now_ms, "t", TopicOverrides(retention_ms=77))
    sim.commit()
    for restart in (sim.crash, sim.checkpoint, sim.crash):
        config = sim.broker.topic("t").config
        assert (config.retention_ms, config.max_in_flight) == (77, TopicConfig().max_in_flight)
        restart()


# Deletion


def test_a_deleted_topic_takes_its_groups_and_leaves_its_dead_letters() -> None:
    sim = Simulator()
    sim.create()
    sim.produce()
    consumer = sim.attach()
    sim.nack(0, retryable=False)
    sim.broker.delete_topic("t")
    assert sim.broker.effects.ended == [consumer]
    sim.commit()
    for _ in range(2):
        assert list(sim.broker.state.topics) == ["dlq.t"]
        assert not sim.broker.state.groups_by_id
        sim.crash()


def test_what_is_left_of_a_deleted_topic_is_not_taken_for_the_next_of_its_name() -> None:
    """Deadlines, timers, idempotency keys and a message on its way, all of the old one."""
    sim = Simulator()
    sim.create(partitions=2)
    sim.attach(lease_ms=50)
    sim.produce(envelope={"idempotency_key": "k", "deadline": "1970-01-01T00:16:50Z"})
    sim.broker.produce(sim.now_ms, "t", b"", b"on its way")
    sim.broker.delete_topic("t")
    sim.commit()
    sim.take()
    sim.create()
    assert not sim.produce(envelope={"idempotency_key": "k"}).deduplicated
    sim.attach("new", lease_ms=3_600_000)
    sim.advance(60_000)
    assert sim.take() == [(0, 1, "new")]
    assert "dlq.t" not in sim.broker.state.topics


@pytest.mark.parametrize("checkpoint", [False, True])
def test_the_number_of_a_deleted_topic_is_not_given_again_after_a_restart(checkpoint: bool) -> None:
    sim = Simulator()
    sim.create()
    sim.broker.delete_topic("t")
    sim.commit()
    if checkpoint:
        sim.checkpoint()
    sim.crash()
    sim.create()
    assert sim.broker.topic("t").id == 2


def test_a_higher_limit_holds_at_once() -> None:
    sim = Simulator(BrokerConfig(topic=TopicConfig(max_in_flight=1)))
    sim.create()
    sim.attach()
    sim.produce()
    sim.produce()
    assert len(sim.delivered) == 1
    sim.broker.change_topic(sim.now_ms, "t", TopicOverrides(max_in_flight=2))
    sim.commit()
    assert len(sim.delivered) == 2


def test_dead_letters_of_a_topic_that_was_deleted_grow_with_the_next_of_its_name() -> None:
    sim = Simulator()
    sim.create()
    sim.broker.create_topic(sim.now_ms, "dlq.t")
    sim.broker.delete_topic("t")
    sim.broker.create_topic(sim.now_ms, "t", 3)
    assert len(sim.broker.topic("dlq.t").partitions) == 3
