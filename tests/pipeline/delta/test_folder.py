"""Commits to tables: each batch once, whoever was killed before or after it."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from slipstream.pipeline.delta import DateFiles, DeltaFolder, Fold, Latest, Stamp, Written
from slipstream.pipeline.tables import Table

NOW = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)

LOGGED = Table(
    name="logged",
    layer="bronze",
    what="What was logged.",
    queries=("messages",),
    columns=pa.schema(
        [
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("timestamp", pa.timestamp("us", "UTC")),
            ("date", pa.date32()),
        ]
    ),
    partition_by=("date",),
    time="timestamp",
)
COUNTED = Table(
    name="counted",
    layer="gold",
    what="How often, and what last.",
    queries=("messages",),
    columns=pa.schema(
        [("name", pa.string()), ("times", pa.int64()), ("last", pa.string()), ("at", pa.timestamp("us", "UTC"))]
    ),
    fold=Fold(("name",), {"times": "sum", "last": Latest(("at",)), "at": "max"}, seen="at"),
    sources=("logged",),
    time="at",
)


def written(root: Path, *offsets: int, at: dt.datetime = NOW) -> list[Written]:
    rows = [{"partition": 0, "offset": offset, "timestamp": at} for offset in offsets]
    stored = pa.schema([field for field in LOGGED.columns if field.name != "date"])
    with DateFiles(root, LOGGED.name, LOGGED.columns) as files:
        files.write(pa.RecordBatch.from_pylist(rows, schema=stored))
    return files.written


def counted(**times: tuple[int, str, int]) -> pa.Table:
    rows = [
        {"name": name, "times": count, "last": last, "at": NOW + dt.timedelta(seconds=second)}
        for name, (count, last, second) in times.items()
    ]
    return pa.Table.from_pylist(rows, schema=COUNTED.columns)


def offsets(root: Path) -> list[int]:
    return sorted(DeltaTable(str(root / LOGGED.name)).to_pyarrow_table().column("offset").to_pylist())


def names(root: Path) -> dict[str, tuple[int, str]]:
    rows = DeltaTable(str(root / COUNTED.name)).to_pyarrow_table().to_pylist()
    return {row["name"]: (row["times"], row["last"]) for row in rows}


def test_files_are_part_of_a_table_once(tmp_path: Path) -> None:
    folder = DeltaFolder(tmp_path)
    files = written(tmp_path, 1, 2)
    assert folder.append(LOGGED, files, Stamp("q", 0))
    assert not folder.append(LOGGED, files, Stamp("q", 0))
    assert not DeltaFolder(tmp_path).append(LOGGED, files, Stamp("q", 0)), "who comes after a crash knows it too"
    assert DeltaFolder(tmp_path).append(LOGGED, written(tmp_path, 3), Stamp("q", 1))
    assert offsets(tmp_path) == [1, 2, 3]


def test_queries_do_not_stand_in_each_others_way(tmp_path: Path) -> None:
    folder = DeltaFolder(tmp_path)
    assert folder.append(LOGGED, written(tmp_path, 1), Stamp("q", 5))
    assert folder.append(LOGGED, written(tmp_path, 2), Stamp("r", 0))
    assert offsets(tmp_path) == [1, 2]


def test_rows_take_in_what_comes_once(tmp_path: Path) -> None:
    folder = DeltaFolder(tmp_path)
    assert folder.fold(COUNTED, counted(a=(1, "x", 5)), Stamp("q", 0))
    for _ in range(2):
        folder.fold(COUNTED, counted(a=(2, "older", 4), b=(1, "y", 0)), Stamp("q", 1))
    assert names(tmp_path) == {"a": (3, "x"), "b": (1, "y")}
    DeltaFolder(tmp_path).fold(COUNTED, counted(a=(1, "newer", 6)), Stamp("q", 2))
    assert names(tmp_path) == {"a": (4, "newer"), "b": (1, "y")}


def test_rows_that_are_long_past_are_not_looked_at(tmp_path: Path) -> None:
    """Who says since when, knows that of rows before nothing comes: where something does, it is a row of its own."""
    folder = DeltaFolder(tmp_path)
    folder.fold(COUNTED, counted(past=(1, "x", 0), late=(1, "x", 60)), Stamp("q", 0))
    since_us = int((NOW + dt.timedelta(seconds=30)).timestamp()) * 1_000_000
    folder.fold(COUNTED, counted(past=(1, "z", 90), late=(1, "z", 90)), Stamp("q", 1), since_us=since_us)
    rows = DeltaTable(str(tmp_path / COUNTED.name)).to_pyarrow_table().to_pylist()
    found = sorted((row["name"], row["times"], row["last"]) for row in rows)
    assert found == [("late", 2, "z"), ("past", 1, "x"), ("past", 1, "z")]


def test_what_was_taken_is_known_after_checkpoints_compaction_and_vacuum(tmp_path: Path) -> None:
    folder = DeltaFolder(tmp_path)
    for number in range(110):
        folder.append(LOGGED, written(tmp_path, number), Stamp("q", number))
    folder.compact(LOGGED)
    found = folder.open(LOGGED)
    found.create_checkpoint()
    found.cleanup_metadata()
    fresh = DeltaFolder(tmp_path)
    assert not fresh.append(LOGGED, written(tmp_path, 109), Stamp("q", 109))
    assert fresh.last_batch(LOGGED, "q") == 109
    assert offsets(tmp_path) == list(range(110))
    assert len(fresh.files(LOGGED)) == 1


def test_a_table_gets_the_columns_that_a_newer_release_has(tmp_path: Path) -> None:
    DeltaFolder(tmp_path).append(LOGGED, written(tmp_path, 1), Stamp("q", 0))
    task = pa.field("task", pa.struct([("a", pa.string())]))
    wider = msgspec.structs.replace(LOGGED, columns=LOGGED.columns.append(task))
    DeltaFolder(tmp_path).open(wider)
    wider_still = msgspec.structs.replace(
        LOGGED, columns=LOGGED.columns.append(pa.field("task", pa.struct([("a", pa.string()), ("b", pa.int64())])))
    )
    folder = DeltaFolder(tmp_path)
    stored = pa.schema([field for field in wider_still.columns if field.name != "date"])
    row = {"partition": 0, "offset": 2, "timestamp": NOW, "task": {"a": "x", "b": 7}}
    with DateFiles(tmp_path, LOGGED.name, wider_still.columns) as files:
        files.write(pa.RecordBatch.from_pylist([row], schema=stored))
    assert folder.append(wider_still, files.written, Stamp("q", 1))
    rows = folder.open(wider_still).to_pyarrow_table().sort_by("offset").to_pylist()
    assert [row["task"] for row in rows] == [None, {"a": "x", "b": 7}]


def test_a_day_is_replaced_and_others_stay(tmp_path: Path) -> None:
    folder = DeltaFolder(tmp_path)
    yesterday = NOW - dt.timedelta(days=1)
    folder.append(LOGGED, written(tmp_path, 1, 2), Stamp("q", 0))
    folder.append(LOGGED, written(tmp_path, 3, at=yesterday), Stamp("q", 1))
    folder.replace_day(LOGGED, NOW.date().isoformat(), written(tmp_path, 1, 5))
    assert offsets(tmp_path) == [1, 3, 5]
    assert folder.count(LOGGED, f"date = '{yesterday.date().isoformat()}'") == 1


def test_rows_are_renewed_and_stale_ones_go(tmp_path: Path) -> None:
    folder = DeltaFolder(tmp_path)
    folder.fold(COUNTED, counted(a=(5, "x", 0), b=(5, "y", 0), c=(5, "z", 0)), Stamp("q", 0))
    folder.renew(COUNTED, counted(a=(1, "new", 0)), stale="t.name = 'b'")
    assert names(tmp_path) == {"a": (1, "new"), "c": (5, "z")}


def test_files_that_nobody_will_commit_can_be_discarded(tmp_path: Path) -> None:
    files = written(tmp_path, 1)
    DeltaFolder(tmp_path).discard(files)
    assert not list(tmp_path.rglob("*.parquet"))


@pytest.mark.parametrize("where", ["1 = 1", "name = 'a'"])
def test_rows_are_replaced(tmp_path: Path, where: str) -> None:
    folder = DeltaFolder(tmp_path)
    folder.fold(COUNTED, counted(a=(5, "x", 0)), Stamp("q", 0))
    folder.replace(COUNTED, counted(a=(1, "y", 0)), Stamp("q", 1), where)
    assert not folder.replace(COUNTED, counted(a=(2, "z", 0)), Stamp("q", 1), where)
    assert names(tmp_path) == {"a": (1, "y")}
