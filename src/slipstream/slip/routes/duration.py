"""Durations as people write them in a file: `250ms`, `10s`, `5m`, `2h`, `3d`, or a number of seconds; and in a program:
a number of seconds, or a timedelta."""

from __future__ import annotations

import datetime as dt
import math
import re
from typing import Final

from slipstream.slip.errors import InvalidSlip

DURATION_MAX: Final = dt.timedelta(days=3650)
"""Whoever waits longer than ten years has mistaken the unit."""

_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_WRITTEN: Final = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,3})?) ?(ms|s|m|h|d)\Z")


def parse_duration(written: object) -> dt.timedelta:
    """In whole milliseconds, of which there is at least one. Raises ValueError."""
    if isinstance(written, str) and (found := _WRITTEN.match(written)) is not None:
        ms = float(found[1]) * _UNITS_MS[found[2]]
    elif isinstance(written, float) and math.isfinite(written):
        ms = written * 1_000
    elif isinstance(written, int) and not isinstance(written, bool):
        ms = min(written, 10**12) * 1_000  # an int can be more than a float has room for
    else:
        raise ValueError("a duration is wanted: 250ms, 10s, 5m, 2h, 3d, or a number of seconds")
    if ms < 1 or ms > DURATION_MAX / dt.timedelta(milliseconds=1):
        raise ValueError(f"a duration is at least 1ms and at most {DURATION_MAX.days}d")
    return dt.timedelta(milliseconds=round(ms))


def seconds(name: str, given: float | str | dt.timedelta) -> float:
    """Of an argument with this name, which may be written as in a file. Raises InvalidSlip."""
    try:
        duration = given if isinstance(given, dt.timedelta) else parse_duration(given)
    except ValueError as error:
        raise InvalidSlip(f"{name}={given!r}: {error}") from error
    if not dt.timedelta(0) < duration <= DURATION_MAX:
        raise InvalidSlip(f"{name}={given!r}: a duration is more than nothing and at most {DURATION_MAX.days}d")
    return duration.total_seconds()


def milliseconds(duration: dt.timedelta) -> int:
    return duration // dt.timedelta(milliseconds=1)
