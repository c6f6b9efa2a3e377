"""Durations, sizes, times, pairs, JSON and places, as people type them."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import click
import pytest

from slipstream.cli.values import Duration, Json, Pair, PlaceName, PlaceOf, Size, When, size_text


def typed(kind: Any, text: str) -> Any:
    return kind.convert(text, None, None)


@pytest.mark.parametrize(
    ("text", "ms"),
    [("0", 0), ("500ms", 500), ("10s", 10_000), ("1.5m", 90_000), ("2H", 7_200_000), ("7d", 604_800_000)],
)
def test_durations(text: str, ms: int) -> None:
    assert typed(Duration(), text) == ms


@pytest.mark.parametrize(("text", "size"), [("1000", 1_000), ("64k", 65_536), ("1MiB", 1 << 20), ("2g", 2 << 30)])
def test_sizes(text: str, size: int) -> None:
    assert typed(Size(), text) == size


def test_times() -> None:
    assert typed(When(), "2030-01-31T12:00:00Z") == dt.datetime(2030, 1, 31, 12, tzinfo=dt.UTC)
    assert typed(When(), "2030-01-31").tzinfo is not None
    ago = dt.datetime.now(dt.UTC) - typed(When(), "10m")
    assert dt.timedelta(minutes=9) < ago < dt.timedelta(minutes=11)


def test_json_and_files_of_it(tmp_path: Path) -> None:
    (tmp_path / "order.json").write_text('{"books": 2}')
    assert typed(Json(), '{"books": [1, null]}') == {"books": [1, None]}
    assert typed(Json(), f"@{tmp_path}/order.json") == {"books": 2}


def test_pairs_and_places() -> None:
    assert typed(Pair(), "a=b=c") == ("a", "b=c")
    assert typed(PlaceOf(), "dlq.orders/0/17") == PlaceName("dlq.orders", 0, 17)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Duration(), "10"),
        (Duration(), "soon"),
        (Duration(), "-1s"),
        (Duration(), "1000001d"),
        (Duration(), "9" * 400 + "h"),
        (Size(), "1x"),
        (Json(), "{"),
        (Json(), "@/no/such/file"),
        (When(), "noon"),
        (Pair(), "a"),
        (Pair(), "=b"),
        (PlaceOf(), "orders/0"),
        (PlaceOf(), "orders/x/1"),
    ],
)
def test_what_is_none_of_them_is_refused_with_an_example(kind: Any, text: str) -> None:
    with pytest.raises(click.BadParameter, match="type "):
        typed(kind, text)


def test_numbers_for_people() -> None:
    assert [size_text(size) for size in (5, 1_536, 5 << 20, 3 << 40)] == ["5 B", "1.5 KiB", "5.0 MiB", "3.0 TiB"]
