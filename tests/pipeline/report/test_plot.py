"""Plots: what they draw, and what they say to those who do not see it."""

from __future__ import annotations

import datetime as dt
import re

import pytest

from slipstream.pipeline.report.plot import Series, both, histogram, lines, share_bar, time_ticks, value_ticks

AT = dt.datetime(2030, 1, 1, 12, tzinfo=dt.UTC)
TIMES = [AT + index * dt.timedelta(minutes=1) for index in range(5)]


@pytest.mark.parametrize(
    ("top", "ticks"),
    [
        (0, [0, 1]),
        (3, [0, 1, 2, 3]),
        (82, [0, 25, 50, 75, 100]),
        (0.07, [0, 0.02, 0.04, 0.06, 0.08]),
        (4000, [0, 1000, 2000, 3000, 4000]),
    ],
)
def test_values_are_marked_at_round_numbers(top: float, ticks: list[float]) -> None:
    assert value_ticks(top) == ticks


def test_times_are_marked_at_full_ones() -> None:
    first = dt.datetime(2030, 1, 1, 10, 7, tzinfo=dt.UTC)
    assert [f"{tick:%H:%M}" for tick in time_ticks(first, first + dt.timedelta(hours=3), 8)] == [
        *("10:30", "11:00", "11:30", "12:00", "12:30", "13:00")
    ]
    days = time_ticks(first, first + dt.timedelta(days=6), 8)
    assert {f"{tick:%H:%M}" for tick in days} == {"00:00"}
    assert time_ticks(first, first, 8) == [first]


def test_a_line_has_gaps_where_there_is_no_value_and_a_dot_for_one_that_stands_alone() -> None:
    drawn = lines("t", TIMES, [Series("s", [1, 2, None, 3, None], "t0")], str, width=400)
    (path,) = re.findall(r'<path d="(M[^"]*)"', drawn)
    assert path.count("M") == 1
    assert path.count("L") == 1
    assert drawn.count("<circle") == 1


def test_every_point_is_told_in_words() -> None:
    series = [Series("stored", [1, None, 3, 4, 5], "good", is_filled=True), Series("<failed>", [0] * 5, "bad")]
    drawn = lines("Stored over time", TIMES, series, "{:g}".format, width=400)
    assert drawn.startswith('<svg viewBox="0 0 400 220" role="img" class="plot" font-size="12"><title>Stored over time')
    assert "2030-01-01 12:01: stored -, &lt;failed&gt; 0" in drawn
    assert 'class="area good"' in drawn


def test_nothing_can_be_drawn() -> None:
    assert lines("t", [], [], str, width=400).startswith("<svg")
    assert lines("t", TIMES[:1], [Series("s", [0], "t0")], str, width=400).count("<circle") == 1
    assert histogram("t", [], [], width=400).startswith("<svg")
    assert share_bar("t", [("a", 0, "t0")]).count("<rect") == 0


def test_the_parts_of_a_bar_fill_it() -> None:
    drawn = share_bar("t", [("a", 1, "t0"), ("none", 0, "t1"), ("b", 3, "bad")])
    assert re.findall(r' x="([\d.]+)" y="0" width="([\d.]+)"', drawn) == [("0", "25"), ("25", "75")]
    assert "<title>b: 3</title>" in drawn


def test_a_plot_is_drawn_for_a_screen_and_for_a_phone() -> None:
    drawn = both(lambda width: histogram("t", ["a"], [1], width=width))
    assert 'class="wide"><svg viewBox="0 0 860' in drawn
    assert 'class="narrow"><svg viewBox="0 0 360' in drawn


@pytest.mark.parametrize("days", [1, 30, 365, 3660])
def test_times_have_room_however_many_there_are(days: int) -> None:
    first = dt.datetime(2026, 3, 14, 5, tzinfo=dt.UTC)
    found = time_ticks(first, first + dt.timedelta(days=days), 8)
    assert 4 <= len(found) <= 9
