"""Attempts on one axis of time, under each other and indented like the tree that they are."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

import msgspec

from slipstream.pipeline.report.html import Html, tag
from slipstream.pipeline.report.plot import NARROW, both, value_ticks
from slipstream.pipeline.report.words import ms_text

_MS = dt.timedelta(milliseconds=1)
_INDENT = 16
_LETTER = 6.4
"""Units of a letter, about."""


class Row(msgspec.Struct, frozen=True):
    """A step, or the run above its steps."""

    label: str
    depth: int
    began: dt.datetime | None
    ended: dt.datetime | None
    tone: str
    said: str = ""
    is_run: bool = False
    is_open: bool = False
    """It goes on still."""


def gantt(title: str, rows: Sequence[Row]) -> Html:
    return both(lambda width: _draw(title, rows, width))


def span_of(rows: Sequence[Row]) -> tuple[dt.datetime, dt.datetime] | None:
    times = [time for row in rows for time in (row.began, row.ended) if time is not None]
    return (min(times), max(times)) if times else None


def _draw(title: str, rows: Sequence[Row], width: int) -> Html:
    span = span_of(rows)
    is_narrow = width <= NARROW
    wanted = [_INDENT * row.depth + 8 * len(row.label) + 12 for row in rows]
    label_wide = 0 if is_narrow else min(300, max([90, *wanted]))
    left, right, top = label_wide + 4, 62, 26
    high = 38 if is_narrow else 25
    inner = width - left - right
    first = span[0] if span else None
    whole_ms = max(1e-3, (span[1] - span[0]) / _MS) if span else 1.0
    height = top + high * len(rows) + 6

    def x(at: dt.datetime) -> float:
        assert first is not None
        return round(left + inner * ((at - first) / _MS) / whole_ms, 1)

    drawn: list[Html] = []
    ticks = [tick for tick in value_ticks(whole_ms, 2 if is_narrow else 5) if tick <= whole_ms]
    for tick in ticks:
        at = round(left + inner * tick / whole_ms, 1)
        drawn.append(tag("line", x1=at, x2=at, y1=top - 4, y2=height - 4, class_="grid"))
        drawn.append(
            tag("text", ms_text(tick), x=at, y=14, class_="tick", text_anchor="start" if not tick else "middle")
        )
    for index, row in enumerate(rows):
        drawn += _row(row, top + index * high, x, left=left, right_edge=width - right, is_narrow=is_narrow, width=width)
    return tag(
        "svg", tag("title", title), drawn, viewBox=f"0 0 {width} {height}", role="img", class_="plot", font_size=12
    )


def _row(row: Row, y: int, x: object, *, left: int, right_edge: int, is_narrow: bool, width: int) -> list[Html]:
    assert callable(x)
    at = _INDENT * row.depth
    room = (width - 70 if is_narrow else left) - at - 10
    label = _cut(row.label, int(room / (_LETTER + (0.8 if row.is_run else 0.2))))
    label_y = y + 13 if is_narrow else y + 15
    bar_y = y + 18 if is_narrow else y + 4
    tall = 5 if row.is_run else 14
    found = [tag("text", label, x=at, y=label_y, class_="strong" if row.is_run else None)]
    if row.began is None and row.ended is None:
        found.append(tag("text", row.said, x=left + 4, y=bar_y + 11, class_="said"))
        return found
    begin = x(row.began or row.ended)
    end = max(x(row.ended or row.began), begin + 2)
    took = (row.ended - row.began) / _MS if row.began is not None and row.ended is not None else None
    told = f"{row.label}: {ms_text(took) if took is not None else 'no end yet'}" + (f", {row.said}" if row.said else "")
    bar = tag(
        "rect",
        tag("title", told),
        x=begin,
        y=bar_y + (4 if row.is_run else 0),
        width=round(end - begin, 1),
        height=tall,
        rx=2,
        class_=f"fill {row.tone}",
    )
    found.append(bar)
    if took is not None:
        shown = ms_text(took) + (" …" if row.is_open else "")
        found.append(tag("text", shown, x=width - 2, y=bar_y + 11, class_="tick", text_anchor="end"))
    return found + _beside(row, begin, end, bar_y + 11, left, right_edge)


def _beside(row: Row, begin: float, end: float, y: float, left: int, right_edge: int) -> list[Html]:
    """What is said of it, where there is more room: after its bar or before it."""
    if not row.said or row.is_run:
        return []
    after, before = right_edge - end - 8, begin - left - 8
    room = max(after, before)
    shown = _cut(row.said, int(room / 5.8))
    if len(shown) < 4:
        return []
    if after >= before:
        return [tag("text", shown, x=round(end + 6, 1), y=y, class_="said")]
    return [tag("text", shown, x=round(begin - 6, 1), y=y, class_="said", text_anchor="end")]


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: max(0, most - 1)] + "…"
