"""Windows of the log that a commit has consumed, step by step on a clock of their own."""

from __future__ import annotations

import pytest

from slipstream.broker import (
    Broker,
    BrokerConfig,
    BrokerFull,
    Consumed,
    FailedPrecondition,
    InvalidArgument,
    NewMessage,
    NotFound,
)
from slipstream.broker.changes import decode_changes
from slipstream.store import MemoryLog

NOW_MS = 1_700_000_000_000


@pytest.fixture
def broker() -> Broker:
    """Ten messages in two partitions of `tasks`, and a group that has finished none."""
    made = Broker(BrokerConfig(), lambda *_: MemoryLog())
    made.create_topic(NOW_MS, "tasks", 2)
    made.create_topic(NOW_MS, "answers")
    made.produce_batch(NOW_MS, "tasks", [NewMessage(f"{n}".encode(), b"x") for n in range(10)])
    made.committed(made.effects.publications, NOW_MS)
    made.seek(NOW_MS, "tasks", "g", lambda partition: partition.first_index)
    made.effects.changes.clear()
    return made


def commit(broker: Broker, sequence: int, start: int, end: int, *, value: bytes = b"done") -> bool:
    broker.commits.stage(NOW_MS, f"part-{sequence}", "w", sequence, "answers", [NewMessage(b"", value)], 1)
    window = Consumed("tasks", "g", start, end)
    return broker.commits.commit(NOW_MS, "w", sequence, [f"part-{sequence}"], [window])


def lag(broker: Broker) -> int:
    return sum(progress.lag for progress in broker.group("tasks", "g").progress)


def stored(broker: Broker) -> int:
    return broker.topic("answers").partitions[0].count


def test_answers_are_stored_and_the_group_goes_on_behind_the_window(broker: Broker) -> None:
    assert commit(broker, 1, 0, 4)
    assert (stored(broker), lag(broker)) == (1, 6)
    assert commit(broker, 2, 4, 10)
    assert (stored(broker), lag(broker)) == (2, 0)


def test_who_reads_for_the_group_as_others_do_gets_what_lies_behind_the_window(broker: Broker) -> None:
    commit(broker, 1, 0, 7)
    broker.attach(NOW_MS, "tasks", "g", "worker", 1_000, 100, object())
    offsets = sorted(delivery.record.offset for delivery in broker.effects.deliveries)
    assert offsets == [7, 8, 9]


def test_of_two_who_read_the_same_window_one_commits(broker: Broker) -> None:
    assert commit(broker, 1, 0, 4)
    with pytest.raises(FailedPrecondition, match="not at offset 0"):
        commit(broker, 2, 0, 4)
    assert (stored(broker), lag(broker)) == (1, 6)


def test_what_was_refused_has_changed_nothing_and_can_be_said_again(broker: Broker) -> None:
    with pytest.raises(FailedPrecondition):
        commit(broker, 1, 3, 4)
    assert (stored(broker), lag(broker), broker.commits.last(NOW_MS, "w")) == (0, 10, None)
    assert broker.commits.commit(NOW_MS, "w", 1, ["part-1"], [Consumed("tasks", "g", 0, 4)])


def test_a_message_that_somebody_holds_is_not_passed_over(broker: Broker) -> None:
    broker.attach(NOW_MS, "tasks", "g", "worker", 1_000, 1, object())
    with pytest.raises(FailedPrecondition, match="nothing in flight"):
        commit(broker, 1, 0, 4)


def test_a_repeat_says_so_and_moves_nothing(broker: Broker) -> None:
    commit(broker, 1, 0, 4)
    assert not broker.commits.commit(NOW_MS, "w", 1, [], [Consumed("tasks", "g", 4, 10)])
    assert lag(broker) == 6


def test_a_group_that_was_moved_back_is_not_moved_on(broker: Broker) -> None:
    commit(broker, 1, 0, 4)
    broker.seek(NOW_MS, "tasks", "g", lambda partition: partition.first_index)
    with pytest.raises(FailedPrecondition):
        commit(broker, 2, 4, 10)
    assert commit(broker, 3, 0, 10)


def test_what_retention_has_removed_meanwhile_is_no_hindrance(broker: Broker) -> None:
    for partition in broker.topic("tasks").partitions:
        index = partition.log.index_from(6)
        broker.trim(NOW_MS, partition, index, partition.log.bytes_before(index), 6)
    assert commit(broker, 1, 0, 10)
    assert lag(broker) == 0


def test_a_window_of_nothing_is_a_commit(broker: Broker) -> None:
    assert commit(broker, 1, 0, 0)
    assert lag(broker) == 10


def test_a_restart_comes_to_the_same_end(broker: Broker) -> None:
    snapshot = broker.snapshot()
    commit(broker, 1, 0, 4)
    taken = broker.effects.changes
    again = Broker(BrokerConfig(), lambda *_: MemoryLog())
    again.restore(snapshot)
    again.replay(decode_changes(b"\xdd" + len(taken).to_bytes(4, "big") + b"".join(taken)))

    def places(found: Broker) -> list[tuple[int, int, int]]:
        return [(each.position, each.cursor, each.done_bytes) for each in found.group("tasks", "g").progress]

    assert places(again) == places(broker)
    assert sum(position for position, _, _ in places(again)) == 4


@pytest.mark.parametrize(
    ("window", "error", "said"),
    [
        (Consumed("tasks", "g", 4, 2), InvalidArgument, "ends before it begins"),
        (Consumed("tasks", "g", 0, 11), FailedPrecondition, "ends at 10"),
        (Consumed("tasks", "g", 0, 4, incarnation="another"), FailedPrecondition, "created again"),
        (Consumed("tasks", "new", 1, 2), FailedPrecondition, "not at offset 1"),
        (Consumed("tasks", "no name", 0, 1), InvalidArgument, "group"),
        (Consumed("tasks", "g", 0, 1, partition=2), NotFound, "partitions 0 to 1"),
        (Consumed("nowhere", "g", 0, 1), NotFound, "nowhere"),
    ],
)
def test_what_makes_no_sense_is_refused_with_words(
    broker: Broker, window: Consumed, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        broker.commits.commit(NOW_MS, "w", 1, [], [window])


def test_a_partition_has_one_window(broker: Broker) -> None:
    with pytest.raises(InvalidArgument, match="two windows of tasks/0"):
        broker.commits.commit(NOW_MS, "w", 1, [], [Consumed("tasks", "g", 0, 1), Consumed("tasks", "g", 1, 2)])


def test_a_group_that_is_new_is_made_and_was_at_the_beginning(broker: Broker) -> None:
    assert broker.commits.commit(NOW_MS, "w", 1, [], [Consumed("tasks", "new", 0, 4)])
    assert sum(progress.lag for progress in broker.group("tasks", "new").progress) == 6


def test_a_group_that_would_be_one_too_many_is_not_made_and_nothing_is_stored(broker: Broker) -> None:
    broker.config = broker.commits.config = BrokerConfig(groups_max=1)
    with pytest.raises(BrokerFull, match="max_groups"):
        broker.commits.commit(NOW_MS, "w", 1, [], [Consumed("tasks", "new", 0, 4)])
    assert broker.commits.last(NOW_MS, "w") is None


def test_partitions_that_are_apart_have_a_window_each(broker: Broker) -> None:
    assert broker.commits.commit(NOW_MS, "w", 1, [], [Consumed("tasks", "g", 0, 8, partition=0)])
    behind = lag(broker)
    assert 0 < behind < 10
    windows = [Consumed("tasks", "g", 8, 10, partition=0), Consumed("tasks", "g", 0, 10, partition=1)]
    assert broker.commits.commit(NOW_MS, "w", 2, [], windows)
    assert lag(broker) == 0


def test_a_paused_group_consumes_nothing(broker: Broker) -> None:
    broker.pause(NOW_MS, "tasks", "g", paused=True)
    with pytest.raises(FailedPrecondition, match="paused"):
        commit(broker, 1, 0, 4)
    broker.pause(NOW_MS, "tasks", "g", paused=False)
    assert broker.commits.commit(NOW_MS, "w", 1, ["part-1"], [Consumed("tasks", "g", 0, 4)])


def test_a_partition_of_which_nothing_was_in_the_window_is_behind_it_too(broker: Broker) -> None:
    topic = broker.topic("tasks")
    broker.produce_batch(NOW_MS, "tasks", [NewMessage(b"0", b"x")] * 100)
    broker.committed(broker.effects.publications, NOW_MS)
    incarnation = topic.incarnation
    assert broker.commits.commit(NOW_MS, "w", 1, [], [Consumed("tasks", "g", 0, 110, incarnation=incarnation)])
    assert [progress.watermark for progress in broker.group("tasks", "g").progress] == [109, 109]
