"""Which task reads what."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from slipstream.pipeline.source.planning import TASK_ROWS, shares, tasks_of
from slipstream.pipeline.source.range import Range


def of_topic(topic: str, partitions: int, end: int, start: int = 0) -> list[Range]:
    return [Range(topic, "1", partition, start, end) for partition in range(partitions)]


def test_small_topics_share_a_task() -> None:
    (task,) = tasks_of([*of_topic("a", 8, 1_000), *of_topic("b", 2, 500)])
    assert len(task) == 10


def test_a_large_topic_is_split_into_windows_of_offsets() -> None:
    tasks = tasks_of(of_topic("a", 8, 4 * TASK_ROWS))
    assert [{(each.start, each.end) for each in task} for task in tasks] == [
        {(n * TASK_ROWS, (n + 1) * TASK_ROWS)}
        for n in (0, 3, 1, 2)  # the newest is begun early
    ]


def test_nothing_takes_no_task() -> None:
    assert tasks_of([]) == []
    assert tasks_of(of_topic("a", 2, 5, start=5)) == []


def test_who_wants_more_tasks_gets_them() -> None:
    assert len(tasks_of(of_topic("a", 2, 1_000), tasks_min=5)) == 5
    assert len(tasks_of(of_topic("a", 1, 3), tasks_min=5)) == 3


ranges = st.builds(
    lambda topic, partition, start, width: Range(topic, "1", partition, start, start + width),
    st.sampled_from("ab"),
    st.integers(0, 3),
    st.integers(0, 3 * TASK_ROWS),
    st.integers(0, 3 * TASK_ROWS),
)


@given(st.lists(ranges, unique_by=lambda each: (each.topic, each.partition)), st.integers(1, 9))
def test_every_offset_is_in_one_task(asked: list[Range], tasks_min: int) -> None:
    pieces = sorted(piece for task in tasks_of(asked, tasks_min) for piece in task)
    joined: list[Range] = []
    for piece in pieces:
        last = joined[-1] if joined else None
        if last is not None and (last.topic, last.partition, last.end) == (piece.topic, piece.partition, piece.start):
            joined[-1] = Range(last.topic, "1", last.partition, last.start, piece.end)
        else:
            joined.append(piece)
    assert joined == sorted(each for each in asked if each.width)


@given(st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 10**9)), st.integers(1, 10**9))
def test_a_limit_is_used_whole_and_by_all(backlogs: dict[str, int], limit: int) -> None:
    found = shares(backlogs, limit)
    assert sum(found.values()) == min(limit, sum(backlogs.values()))
    assert all(found[name] <= backlogs[name] for name in backlogs)


def test_a_limit_is_shared_in_proportion() -> None:
    assert shares({"a": 900, "b": 100}, 100) == {"a": 90, "b": 10}
