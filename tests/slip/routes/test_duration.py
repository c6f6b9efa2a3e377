"""Durations as people write them."""

from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.slip.routes.duration import DURATION_MAX, milliseconds, parse_duration


@pytest.mark.parametrize(
    ("written", "ms"),
    [
        ("250ms", 250),
        ("10s", 10_000),
        ("5m", 300_000),
        ("2h", 7_200_000),
        ("3d", 259_200_000),
        ("1.5 s", 1_500),
        (30, 30_000),
        (0.25, 250),
        ("3650d", 3650 * 86_400_000),
    ],
)
def test_a_duration_is_read(written: object, ms: int) -> None:
    assert milliseconds(parse_duration(written)) == ms


@pytest.mark.parametrize("unit", ["ms", "s", "m", "h", "d"])
@given(count=st.integers(1, 3650))
def test_every_count_of_every_unit_is_exact(unit: str, count: int) -> None:
    length = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}[unit]
    assert parse_duration(f"{count}{unit}") == dt.timedelta(milliseconds=count * length)


@pytest.mark.parametrize(
    "written", ["", "10", "s", "-1s", "1w", "10S", "1s2ms", "1s\n", "ten", "\u0661s", True, None, [], {}]
)
def test_what_is_no_duration_is_refused(written: object) -> None:
    with pytest.raises(ValueError, match="a duration is wanted: 250ms, 10s, 5m, 2h, 3d, or a number of seconds"):
        parse_duration(written)


@pytest.mark.parametrize("written", [0, -1, "0s", "0.5ms", 0.0001, "3651d", DURATION_MAX.total_seconds() + 1, 10**400])
def test_a_duration_that_is_too_short_or_too_long_is_refused(written: object) -> None:
    with pytest.raises(ValueError, match="at least 1ms and at most 3650d"):
        parse_duration(written)


@pytest.mark.parametrize("written", [float("nan"), float("inf"), -float("inf")])
def test_what_is_no_number_is_no_duration(written: float) -> None:
    with pytest.raises(ValueError, match="a duration is wanted"):
        parse_duration(written)
