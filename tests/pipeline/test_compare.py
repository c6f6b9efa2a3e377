"""A difference between tables is found, and said."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.pipeline.compare import assert_rows, assert_same_tables, assert_table, same
from tests.pipeline.rows import Row

TIME = dt.datetime(2026, 3, 14, 12, tzinfo=dt.UTC)
TODAY = TIME.date()


def rows() -> list[Row]:
    place = {"topic": "t", "partition": 0, "timestamp": TIME}
    return [
        {**place, "offset": 1, "key": b"\xff", "headers": {"a": "1"}, "value": None},
        {**place, "offset": 2, "key": b"", "headers": None, "value": [{"x": 1.0}]},
    ]


SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("date", pa.date32()),
        ("key", pa.binary()),
        ("headers", pa.map_(pa.string(), pa.string())),
        ("value", pa.list_(pa.struct([("x", pa.float64())]))),
        ("_file", pa.string()),
    ]
)


def written(path: Path, found: list[Row], date: dt.date = TODAY) -> Path:
    full: list[dict[str, Any]] = [row | {"date": date, "_file": "f"} for row in found]
    write_deltalake(path, pa.Table.from_pylist(full, SCHEMA), partition_by=["date"])
    return path


def test_a_table_is_as_expected_in_whatever_order(tmp_path: Path) -> None:
    path = written(tmp_path / "messages", rows())
    assert_table("messages", path, reversed(rows()))


def test_a_date_must_be_that_of_the_timestamp(tmp_path: Path) -> None:
    path = written(tmp_path / "messages", rows(), dt.date(2026, 3, 15))
    with pytest.raises(AssertionError, match="whose date is not"):
        assert_table("messages", path, rows())


def test_what_is_missing_and_what_should_not_be_there_is_said() -> None:
    with pytest.raises(AssertionError, match="has 1 rows, and should have 2: 1 are missing"):
        assert_rows("messages", rows()[:1], rows())
    with pytest.raises(AssertionError, match="has 2 rows, and should have 1: 1 should not be there"):
        assert_rows("messages", rows(), rows()[:1])


def test_two_rows_of_one_place_are_one_too_many() -> None:
    with pytest.raises(AssertionError, match="two rows of"):
        assert_rows("messages", [*rows(), rows()[0]], rows())


def test_the_first_difference_is_shown_by_column() -> None:
    wrong = rows()
    wrong[1]["value"] = [{"x": 2.0}]
    wrong[1]["more"] = 5
    del wrong[1]["key"]
    with pytest.raises(AssertionError, match=r"(?s)'offset': 2.*value: \[.*key: is not there.*more: 5"):
        assert_rows("messages", wrong, rows())


def test_a_reason_is_anybodys_own_words_but_there_must_be_one() -> None:
    row = rows()[0] | {"kind": "JobLog", "reason": "it is cut off"}
    assert_rows("quarantine", [row | {"reason": "truncated"}], [row])
    with pytest.raises(AssertionError, match="reason: nothing"):
        assert_rows("quarantine", [row | {"reason": ""}], [row])


@pytest.mark.parametrize(
    ("found", "wanted", "is_same"),
    [
        (0.1 + 0.2, 0.3, True),
        (1, True, False),
        (1, 1.0, False),
        ("1", 1, False),
        (None, "", False),
        ({}, None, False),
        ([1, 2], [1], False),
        (TIME.astimezone(dt.timezone(dt.timedelta(hours=2))), TIME, True),
        (TIME.date(), TIME, False),
    ],
)
def test_values_are_the_same_or_not(found: Any, wanted: Any, is_same: bool) -> None:
    assert same(found, wanted) == is_same


def test_two_tables_are_the_same_or_it_is_said_where_not(tmp_path: Path) -> None:
    one = written(tmp_path / "one", rows())
    other = written(tmp_path / "other", list(reversed(rows())))
    assert_same_tables("messages", one, other)
    changed = rows()
    changed[0]["key"] = b"changed"
    with pytest.raises(AssertionError, match="1 of 2 rows"):
        assert_same_tables("messages", written(tmp_path / "changed", changed), one)
