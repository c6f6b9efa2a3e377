"""What was never read is said, whatever became of it."""

from __future__ import annotations

import pytest

from slipstream.pipeline.checkpoint import TopicReached
from slipstream.pipeline.missed import gaps, say_what_is_missed
from slipstream.pipeline.queries.task import Done
from slipstream.pipeline.source import Range


def reached(incarnation: str = "1", **partitions: int) -> TopicReached:
    return TopicReached(incarnation, {name.removeprefix("p"): offset for name, offset in partitions.items()})


def read(*ranges: tuple[int, int, int], lost: tuple[tuple[int, int, int], ...] = ()) -> Done:
    return Done([Range("t", "1", *each) for each in ranges], [], [Range("t", "1", *each) for each in lost])


@pytest.mark.parametrize(
    ("ranges", "expected"),
    [
        ([(0, 10)], []),
        ([(0, 4), (4, 10)], []),
        ([(3, 10)], [(0, 2)]),
        ([(0, 4), (6, 9)], [(4, 5), (9, 9)]),
        ([], [(0, 9)]),
    ],
)
def test_gaps(ranges: list[tuple[int, int]], expected: list[tuple[int, int]]) -> None:
    assert list(gaps(0, 10, ranges)) == expected


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_nothing_is_said_where_all_was_read(caplog: pytest.LogCaptureFixture) -> None:
    say_what_is_missed({"t": reached(p0=5)}, {"t": reached(p0=9, p1=9)}, [read((0, 5, 7), (1, 0, 9)), read((0, 7, 9))])
    assert said(caplog) == []


def test_all_of_it_gone_is_said_though_no_task_had_anything_to_do(caplog: pytest.LogCaptureFixture) -> None:
    say_what_is_missed({"t": reached(p0=5, p1=5)}, {"t": reached(p0=9, p1=9)}, [read((1, 5, 9))])
    assert said(caplog) == ["t/0: offsets 5 to 8 were removed before they were read, and are in no table"]


def test_what_went_while_it_was_read_is_said(caplog: pytest.LogCaptureFixture) -> None:
    say_what_is_missed({"t": reached(p0=5)}, {"t": reached(p0=9)}, [read((0, 5, 9), lost=((0, 5, 7),))])
    assert said(caplog) == ["t/0: offsets 5 to 6 were removed before they were read, and are in no table"]


@pytest.mark.parametrize("after", [{}, {"t": reached("2", p0=3)}])
def test_a_topic_that_was_deleted_is_said(after: dict[str, TopicReached], caplog: pytest.LogCaptureFixture) -> None:
    say_what_is_missed({"t": reached(p0=5)}, after, [])
    assert said(caplog) == ["t was deleted: whatever it had from offset 5 on is in no table"]
