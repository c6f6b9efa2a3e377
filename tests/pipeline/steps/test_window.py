"""Windows of a topic, over partitions that may stand apart."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from slipstream.pipeline.steps.window import Window, behind, windows_of

STARTS = st.dictionaries(st.integers(0, 5), st.integers(0, 50), min_size=1)


def covered(window: Window) -> set[tuple[int, int]]:
    return {(number, offset) for number, start in window.starts.items() for offset in range(start, window.end)}


@given(STARTS, st.integers(0, 60), st.integers(1, 20))
def test_windows_cover_all_that_lies_before_the_end_once_and_in_order(
    starts: dict[int, int], end: int, rows: int
) -> None:
    windows = windows_of(starts, end, rows)
    all_covered = [place for window in windows for place in covered(window)]
    assert len(all_covered) == len(set(all_covered))
    assert set(all_covered) == {(n, offset) for n, start in starts.items() for offset in range(start, end)}
    position = dict(starts)
    for window in windows:
        assert window.width <= rows
        assert all(position[number] == start for number, start in window.starts.items()), "each begins where it stands"
        position = behind(position, window.end)


@given(STARTS, st.integers(0, 60))
def test_halves_are_the_whole(starts: dict[int, int], end: int) -> None:
    for window in windows_of(starts, end, 100):
        if window.width > 1:
            first, second = window.halves()
            assert covered(first) | covered(second) == covered(window)
            assert not covered(first) & covered(second)
            assert max(first.width, second.width) < window.width


def test_what_is_consumed_is_said_by_partition() -> None:
    said = Window({1: 5, 0: 3}, 9).consumed("t", "1", "g")
    assert [(each.partition, each.from_, each.to) for each in said] == [(0, 3, 9), (1, 5, 9)]
