"""Numbers, spans and times in a few characters, for the report."""

from __future__ import annotations

import datetime as dt


def count_text(count: float) -> str:
    """`1,234`, `56.7 k`, `8.9 M`."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e4)):
        if abs(count) >= size:
            return f"{count / (1e3 if unit == 'k' else size):.3g} {unit}"
    return f"{count:,.0f}" if count == int(count) or abs(count) >= 100 else f"{count:.3g}"


def bytes_text(size: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def ms_text(ms: float) -> str:
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000)):
        if ms >= size:
            return f"{ms / size:.3g} {unit}"
    return f"{ms:.3g} ms" if ms >= 1 or not ms else f"{ms:.2g} ms"


def ago_text(at: dt.datetime, now: dt.datetime) -> str:
    """`3 h ago`: nobody needs to know it more exactly."""
    ms = (now - at) / dt.timedelta(milliseconds=1)
    return f"{age_text(ms)} ago" if ms >= 0 else f"in {age_text(-ms)}"


def age_text(ms: float) -> str:
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000)):
        if ms >= size:
            return f"{ms / size:.2g} {unit}" if ms < 100 * size else f"{ms / size:.0f} {unit}"
    return "0 s"


def time_text(at: dt.datetime) -> str:
    return f"{at.astimezone(dt.UTC):%Y-%m-%d %H:%M:%S}"


def some(count: int, noun: str) -> str:
    return f"{count_text(count)} {noun}{'' if count == 1 else 's'}"
