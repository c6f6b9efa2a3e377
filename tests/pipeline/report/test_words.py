"""Numbers, spans and times."""

from __future__ import annotations

import datetime as dt

import pytest

from slipstream.pipeline.report.words import ago_text, bytes_text, count_text, ms_text, some


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0"), (7, "7"), (2.5, "2.5"), (1234, "1,234"), (12_345, "12.3 k"), (8_900_000, "8.9 M"), (2e9, "2 G")],
)
def test_counts(count: float, text: str) -> None:
    assert count_text(count) == text


@pytest.mark.parametrize(
    ("ms", "text"),
    [(0, "0 ms"), (0.25, "0.25 ms"), (12, "12 ms"), (1500, "1.5 s"), (90_000, "1.5 min")],
)
def test_spans(ms: float, text: str) -> None:
    assert ms_text(ms) == text


def test_sizes() -> None:
    assert [bytes_text(size) for size in (0, 1023, 2048, 5 << 30, 3 << 41)] == [
        *("0 B", "1023 B", "2.0 KiB", "5.0 GiB", "6.0 TiB")
    ]


def test_ages_are_not_more_exact_than_anybody_needs() -> None:
    now = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
    ages = [dt.timedelta(milliseconds=3), dt.timedelta(minutes=9.42), dt.timedelta(days=247.3), -dt.timedelta(hours=2)]
    assert [ago_text(now - age, now) for age in ages] == ["0 s ago", "9.4 min ago", "247 d ago", "in 2 h"]


def test_one_is_not_many() -> None:
    assert (some(1, "job"), some(0, "job"), some(20_000, "job")) == ("1 job", "0 jobs", "20 k jobs")
