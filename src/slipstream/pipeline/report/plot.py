"""Plots as SVG: drawn here, coloured by the page's style, readable without a mouse and without scripts."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Sequence

import msgspec

from slipstream.pipeline.report.html import Html, join, tag

WIDE, NARROW = 860, 360
"""Units across: of a screen and of a phone. Both are drawn, so that letters have their size on either."""

_FONT = 12
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 10, 10, 24


class Series(msgspec.Struct, frozen=True):
    """One line of a plot."""

    name: str
    values: Sequence[float | None]
    tone: str
    """Of the page's style: `t0` to `t6`, `good`, `bad`."""
    is_filled: bool = False
    is_dashed: bool = False


def both(draw: Callable[[int], Html]) -> Html:
    """For a screen and for a phone; the style shows one of them."""
    return join(tag("div", draw(WIDE), class_="wide"), tag("div", draw(NARROW), class_="narrow"))


def legend(series: Sequence[Series]) -> Html:
    def swatch(each: Series) -> Html:
        line = tag("line", x1=0, y1=5, x2=18, y2=5, class_=f"line {each.tone}{' dashed' if each.is_dashed else ''}")
        return tag("svg", line, viewBox="0 0 18 10", class_="swatch", aria_hidden="true")

    return tag("p", [tag("span", swatch(each), " ", each.name) for each in series], class_="legend")


def lines(
    title: str,
    times: Sequence[dt.datetime],
    series: Sequence[Series],
    show: Callable[[float], str],
    *,
    width: int,
    height: int = 220,
) -> Html:
    """Values over time, from 0 up. A value that is None is a gap."""
    top = max((value for each in series for value in each.values if value is not None), default=0.0)
    ticks = value_ticks(top)
    inner = width - _LEFT - _RIGHT
    tall = height - _TOP - _BOTTOM
    step = inner / max(1, len(times))

    def x(index: int) -> float:
        return round(_LEFT + (index + 0.5) * step, 1)

    def y(value: float) -> float:
        return round(_TOP + tall * (1 - value / ticks[-1]), 1)

    grid = [
        join(
            tag("line", x1=_LEFT, x2=width - _RIGHT, y1=y(tick), y2=y(tick), class_="grid"),
            tag("text", show(tick), x=_LEFT - 6, y=y(tick) + 4, class_="tick", text_anchor="end"),
        )
        for tick in ticks
    ]
    base = y(0)
    drawn = [_line(each, x, y, base) for each in series]
    hits = [
        tag(
            "rect",
            tag("title", f"{at:%Y-%m-%d %H:%M}: " + ", ".join(_told(each, index, show) for each in series)),
            x=round(_LEFT + index * step, 1),
            y=_TOP,
            width=round(step, 2),
            height=tall,
            class_="hit",
        )
        for index, at in enumerate(times)
    ]
    return _svg(title, width, height, grid, _time_axis(times, x, width, height), drawn, hits)


def _told(series: Series, index: int, show: Callable[[float], str]) -> str:
    value = series.values[index]
    return f"{series.name} {'-' if value is None else show(value)}"


def _line(series: Series, x: Callable[[int], float], y: Callable[[float], float], base: float) -> Html:
    """With a dot where a value stands alone: a line of one point is not seen."""
    pieces: list[list[tuple[float, float]]] = [[]]
    for index, value in enumerate(series.values):
        if value is None:
            pieces.append([])
        else:
            pieces[-1].append((x(index), y(value)))
    pieces = [piece for piece in pieces if piece]
    style = f"line {series.tone}{' dashed' if series.is_dashed else ''}"
    path = "".join("M" + "L".join(f"{px:g},{py:g}" for px, py in piece) for piece in pieces if len(piece) > 1)
    dots = [
        tag("circle", cx=piece[0][0], cy=piece[0][1], r=2, class_=f"fill {series.tone}")
        for piece in pieces
        if len(piece) == 1
    ]
    area = ""
    if series.is_filled:
        area = "".join(
            f"M{piece[0][0]:g},{base:g}L"
            + "L".join(f"{px:g},{py:g}" for px, py in piece)
            + f"L{piece[-1][0]:g},{base:g}Z"
            for piece in pieces
            if len(piece) > 1
        )
    return join(
        tag("path", d=area, class_=f"area {series.tone}") if area else None,
        tag("path", d=path, class_=style) if path else None,
        dots,
    )


# Axes


def value_ticks(top: float, count: int = 4) -> list[float]:
    """From 0 to at least `top`, at round numbers."""
    if top <= 0:
        return [0.0, 1.0]
    rough = top / count
    magnitude = 10 ** math.floor(math.log10(rough))
    step = next(nice * magnitude for nice in (1, 2, 2.5, 5, 10) if nice * magnitude >= rough * 0.999)
    return [round(step * index, 10) for index in range(math.ceil(top / step - 1e-9) + 1)]


_STEPS = [dt.timedelta(minutes=each) for each in (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440, 2880, 10080)]
_WEEK = _STEPS[-1]


def time_ticks(first: dt.datetime, last: dt.datetime, most: int) -> list[dt.datetime]:
    """At full hours and the like, in UTC."""
    step = next((each for each in _STEPS if (last - first) / each <= most), None)
    if step is None:
        step = math.ceil((last - first) / _WEEK / most) * _WEEK
    start = first.replace(hour=0, minute=0, second=0, microsecond=0)
    tick = start + math.ceil((first - start) / step) * step
    found = []
    while tick <= last:
        found.append(tick)
        tick += step
    return found


def _time_axis(times: Sequence[dt.datetime], x: Callable[[int], float], width: int, height: int) -> list[Html]:
    if not times:
        return []
    index_of = {at: index for index, at in enumerate(times)}
    found = []
    for tick in time_ticks(times[0], times[-1], max(2, (width - _LEFT) // 90)):
        # A tick may fall inside of what one value stands for.
        index = index_of.get(tick) or min(range(len(times)), key=lambda each: abs(times[each] - tick))
        label = f"{tick:%b %d}" if tick.hour == tick.minute == 0 else f"{tick:%H:%M}"
        at = x(index)
        anchor = "end" if at > width - _RIGHT - 20 else "middle"
        found.append(tag("line", x1=at, x2=at, y1=height - _BOTTOM, y2=height - _BOTTOM + 4, class_="axis"))
        found.append(tag("text", label, x=at, y=height - 6, class_="tick", text_anchor=anchor))
    return found


# Bars


def histogram(
    title: str, names: Sequence[str], counts: Sequence[int], *, width: int, height: int = 180, tone: str = "t0"
) -> Html:
    ticks = value_ticks(max(counts, default=0))
    tall = height - _TOP - _BOTTOM
    step = (width - _LEFT - _RIGHT) / max(1, len(counts))
    every = math.ceil(46 / step)
    drawn: list[Html] = []
    for tick in ticks:
        y = round(_TOP + tall * (1 - tick / ticks[-1]), 1)
        drawn.append(tag("line", x1=_LEFT, x2=width - _RIGHT, y1=y, y2=y, class_="grid"))
        if tick == int(tick):
            drawn.append(tag("text", f"{tick:g}", x=_LEFT - 6, y=y + 4, class_="tick", text_anchor="end"))
    for index, (name, count) in enumerate(zip(names, counts, strict=True)):
        x = _LEFT + index * step
        high = round(tall * count / ticks[-1], 1)
        bar = tag(
            "rect",
            tag("title", f"{name}: {count:,}"),
            x=round(x + step * 0.08, 1),
            y=round(_TOP + tall - high, 1),
            width=round(step * 0.84, 1),
            height=high,
            rx=2,
            class_=f"fill {tone}",
        )
        drawn.append(bar)
        if index % every == 0:
            drawn.append(tag("text", name, x=round(x + step / 2, 1), y=height - 6, class_="tick", text_anchor="middle"))
    return _svg(title, width, height, drawn)


def share_bar(title: str, parts: Sequence[tuple[str, float, str]]) -> Html:
    """One bar in parts: name, how much, tone. Stretches to the room that it has."""
    whole = sum(much for _, much, _ in parts) or 1
    drawn, at = [], 0.0
    for name, much, tone in parts:
        if much:
            wide = 100 * much / whole
            drawn.append(
                tag(
                    "rect",
                    tag("title", f"{name}: {much:,.10g}"),
                    x=round(at, 3),
                    y=0,
                    width=round(wide, 3),
                    height=10,
                    class_=f"fill {tone}",
                )
            )
            at += wide
    return tag(
        "svg", tag("title", title), drawn, viewBox="0 0 100 10", preserveAspectRatio="none", class_="share", role="img"
    )


def _svg(title: str, width: int, height: int, *children: Html | list[Html]) -> Html:
    return tag(
        "svg",
        tag("title", title),
        *children,
        viewBox=f"0 0 {width} {height}",
        role="img",
        class_="plot",
        font_size=_FONT,
    )
