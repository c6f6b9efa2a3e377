"""Attempts on an axis of time."""

from __future__ import annotations

import datetime as dt

from slipstream.pipeline.report.gantt import Row, gantt

AT = dt.datetime(2030, 1, 1, 12, tzinfo=dt.UTC)


def test_where_there_is_nothing_the_plot_is_empty() -> None:
    assert gantt("Nothing", []).count("<title>Nothing</title>") == 2


def test_what_has_no_times_is_named() -> None:
    found = gantt("Plan", [Row(label="later", depth=1, began=None, ended=None, tone="t6", said="planned")])
    assert ">later</text>" in found
    assert ">planned</text>" in found


def test_what_began_and_ended_at_once_can_be_seen() -> None:
    found = gantt("One", [Row(label="quick", depth=0, began=AT, ended=AT, tone="good")])
    assert 'width="2"' in found
