"""What upkeep removes, and what it leaves."""

from __future__ import annotations

import concurrent.futures
import datetime as dt
import os
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from slipstream.pipeline.delta.files import DateFiles
from slipstream.pipeline.delta.folder import DeltaFolder, Stamp
from slipstream.pipeline.errors import InvalidPipeline, TablesBusy
from slipstream.pipeline.folder_lock import locked
from slipstream.pipeline.looking import NoSuchTable, Tables
from slipstream.pipeline.tables import TABLES
from slipstream.pipeline.upkeep import Upkeep, Upkept, maintain
from tests.pipeline.sample_tables import make_table, place

NOW = dt.datetime(2026, 3, 14, 12, tzinfo=dt.UTC)
DAY = dt.timedelta(days=1)


def days_of(root: Path, name: str, column: str) -> list[int]:
    """How many days ago each row is from."""
    rows = Tables(root).query(f'select cast("{column}" as date) from {name} order by 1 desc')
    return [(NOW.date() - day).days for (day,) in rows]


def done(root: Path, **what: Any) -> Upkept:
    (only,) = maintain(root, Upkeep(**what), NOW)
    return only


def make_old(path: Path, age: dt.timedelta) -> None:
    at = time.time() - age.total_seconds()
    os.utime(path, (at, at))


def test_small_files_become_fewer_and_rows_stay(tmp_path: Path) -> None:
    make_table(tmp_path, "quarantine", [place("t", number, NOW - number % 3 * DAY) for number in range(30)], parts=10)
    found = done(tmp_path)
    assert (found.files_before, found.files_after) == (30, 3)
    assert found.rows_removed == found.old_files_removed == found.bytes_freed == 0
    assert list(Tables(tmp_path).query('select sum("offset") from quarantine')) == [(435,)]
    again = done(tmp_path)
    assert (again.files_before, again.files_after) == (3, 3)


def test_upkeep_that_has_nothing_to_do_commits_nothing(tmp_path: Path) -> None:
    make_table(tmp_path, "messages", [place("t", 1, NOW)])
    version = DeltaTable(tmp_path / "messages").version()
    done(tmp_path, keep_days={"messages": 1})
    assert DeltaTable(tmp_path / "messages").version() == version


def test_whole_days_are_removed_from_tables_of_messages(tmp_path: Path) -> None:
    make_table(tmp_path, "messages", [place("t", number, NOW - number * DAY) for number in range(100)])
    assert done(tmp_path).rows_removed == 9
    assert days_of(tmp_path, "messages", "timestamp") == list(range(91))
    # The day in which the time falls is kept whole.
    assert done(tmp_path, keep_days={"messages": 2}).rows_removed == 88
    assert days_of(tmp_path, "messages", "timestamp") == [0, 1, 2]
    assert done(tmp_path, keep_days={"messages": 0}).rows_removed == 0


def test_rows_are_removed_from_tables_that_are_folded(tmp_path: Path) -> None:
    rows = [{"tenant": "a", "minute": NOW - number * DAY} for number in range(5)]
    make_table(tmp_path, "job_throughput", rows, parts=2)
    days = [{"tenant": "a", "day": (NOW - number * DAY).date()} for number in range(5)]
    make_table(tmp_path, "tenant_usage", days)
    found = list(maintain(tmp_path, Upkeep(keep_days={"job_throughput": 2, "tenant_usage": 2}), NOW))
    assert [(each.table, each.rows_removed) for each in found] == [("job_throughput", 2), ("tenant_usage", 2)]
    assert days_of(tmp_path, "job_throughput", "minute") == [0, 1, 2]
    assert days_of(tmp_path, "tenant_usage", "day") == [0, 1, 2]


def test_up_to_which_day_rows_were_removed_is_said(tmp_path: Path) -> None:
    """So that what was made of them is not made anew of what is left."""
    folder = DeltaFolder(tmp_path)
    make_table(tmp_path, "messages", [place("t", number, NOW - number * DAY) for number in range(10)])
    done(tmp_path)
    assert folder.removed_before("messages") is None, "nothing was too old"
    done(tmp_path, keep_days={"messages": 5}, is_dry_run=True)
    assert folder.removed_before("messages") is None
    done(tmp_path, keep_days={"messages": 5})
    assert folder.removed_before("messages") == NOW.date() - 5 * DAY
    make_table(tmp_path, "messages", [place("t", 7, NOW - 7 * DAY)])
    done(tmp_path, keep_days={"messages": 6})
    assert folder.removed_before("messages") == NOW.date() - 5 * DAY, "they do not come back"
    # Of a table without days, that day is removed in part.
    (tmp_path / "messages").rename(tmp_path / "_messages")
    make_table(tmp_path, "slip_steps", [{"step": "a", "last_at": NOW - 9 * DAY}])
    done(tmp_path, keep_days={"slip_steps": 5})
    assert folder.removed_before("slip_steps") == NOW.date() - 4 * DAY


def test_a_row_without_its_time_is_judged_by_its_other_times(tmp_path: Path) -> None:
    old, new = NOW - 100 * DAY, NOW - DAY
    times = {
        "planned-long-ago": (old, None),
        "planned-now": (new, None),
        "nobody-knows": (None, None),
        "tried": (old, new),
        "done": (old, old),
    }
    rows = [{"step_id": step, "first_at": first, "last_at": last} for step, (first, last) in times.items()]
    make_table(tmp_path, "run_lineage", rows)
    assert done(tmp_path, is_dry_run=True).rows_removed == 2
    assert done(tmp_path).rows_removed == 2
    left = Tables(tmp_path).query("select step_id from run_lineage order by 1")
    assert [step for (step,) in left] == ["nobody-knows", "planned-now", "tried"]


@pytest.mark.parametrize("name", [name for name, table in TABLES.items() if not table.partition_by])
def test_a_row_without_any_time_is_kept(tmp_path: Path, name: str) -> None:
    make_table(tmp_path, name, [{}])
    assert done(tmp_path, keep_days={name: 1}).rows_removed == 0
    assert DeltaTable(tmp_path / name).count() == 1


def test_what_only_old_versions_have_is_kept_for_a_while(tmp_path: Path) -> None:
    make_table(tmp_path, "quarantine", [place("t", number, NOW) for number in range(6)], parts=6)
    assert done(tmp_path).old_files_removed == 0
    assert len(list((tmp_path / "quarantine").glob("*/*.parquet"))) == 7
    assert done(tmp_path, keep_versions=dt.timedelta(hours=1)).old_files_removed == 0
    found = done(tmp_path, keep_versions=dt.timedelta(0), is_forced=True)
    assert found.old_files_removed == 6
    assert found.bytes_freed > 6 * 1_000
    assert len(list((tmp_path / "quarantine").glob("*/*.parquet"))) == 1
    assert DeltaTable(tmp_path / "quarantine").count() == 6


def test_by_force_it_does_nothing_beside_a_pipeline(tmp_path: Path) -> None:
    """What tasks have just written, and nobody has committed yet, would be gone."""
    make_table(tmp_path, "messages", [place("t", 1, NOW)])
    (there,) = (tmp_path / "messages").glob("*/*.parquet")
    there.with_name("part-just-written.parquet").write_bytes(b"all of it")
    at_once = {"keep_versions": dt.timedelta(0), "is_forced": True}
    with locked(tmp_path):
        with pytest.raises(TablesBusy, match=f"is written by process {os.getpid()}: stop it first"):
            done(tmp_path, **at_once)
        assert there.with_name("part-just-written.parquet").exists()
        assert done(tmp_path).old_files_removed == 0
        assert done(tmp_path, **at_once, is_dry_run=True).old_files_removed == 1
    assert done(tmp_path, **at_once).old_files_removed == 1
    with locked(tmp_path):
        pass  # it has let go of them


def test_by_force_a_folder_without_tables_is_left_as_it_is(tmp_path: Path) -> None:
    assert list(maintain(tmp_path / "nowhere", Upkeep(is_forced=True))) == []
    assert not (tmp_path / "nowhere").exists()


def test_files_that_nobody_has_committed_are_removed_when_they_are_old(tmp_path: Path) -> None:
    make_table(tmp_path, "messages", [place("t", 1, NOW)])
    (there,) = (tmp_path / "messages").glob("*/*.parquet")
    for name, age in (("being-written", dt.timedelta(minutes=30)), ("of-a-killed-one", 8 * DAY)):
        there.with_name(f"part-{name}.parquet").write_bytes(b"half of it")
        make_old(there.with_name(f"part-{name}.parquet"), age)
    make_old(there, 30 * DAY)
    found = done(tmp_path)
    assert (found.old_files_removed, found.bytes_freed) == (1, 10)
    names = {path.name for path in (tmp_path / "messages").glob("*/*.parquet")}
    assert names == {there.name, "part-being-written.parquet"}


def test_the_log_is_cleaned_and_still_knows_which_batches_it_has(tmp_path: Path) -> None:
    make_table(tmp_path, "messages", [place("t", number, NOW) for number in range(40)], batch=100, parts=40)
    for path in (tmp_path / "messages" / "_delta_log").glob("*.json"):
        make_old(path, 40 * DAY)
    found = done(tmp_path)
    assert found.log_files_removed >= 40
    after = DeltaTable(tmp_path / "messages")
    assert after.transaction_version("messages:spark-s-own") == 139
    assert after.count() == 40
    make_table(tmp_path, "messages", [place("t", 40, NOW)], batch=140)
    assert DeltaTable(tmp_path / "messages").transaction_version("messages:spark-s-own") == 140
    assert done(tmp_path).log_files_removed == 0


def test_a_dry_run_changes_nothing(tmp_path: Path) -> None:
    make_table(tmp_path, "messages", [place("t", number, NOW - number * DAY) for number in range(100)], parts=3)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    found = done(tmp_path, is_dry_run=True, keep_days={"messages": 10})
    assert found.rows_removed == 89
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()} == before


def test_what_makes_no_sense_is_refused(tmp_path: Path) -> None:
    make_table(tmp_path, "messages")
    with pytest.raises(InvalidPipeline, match="there is no table mesages; there are messages"):
        maintain(tmp_path, Upkeep(keep_days={"mesages": 1}))
    with pytest.raises(InvalidPipeline, match="0 is for ever"):
        maintain(tmp_path, Upkeep(keep_days={"messages": -1}))
    with pytest.raises(InvalidPipeline, match="messages can be kept for 36500 days at most; 0 is for ever"):
        maintain(tmp_path, Upkeep(keep_days={"messages": 1_000_000}))
    with pytest.raises(InvalidPipeline, match="old versions can be kept for 36500 days at most"):
        maintain(tmp_path, Upkeep(keep_versions=dt.timedelta.max))
    with pytest.raises(InvalidPipeline, match="for an hour at least"):
        maintain(tmp_path, Upkeep(keep_versions=dt.timedelta(minutes=59)))
    with pytest.raises(NoSuchTable, match="job_logs is not there yet"):
        maintain(tmp_path, Upkeep(tables=("job_logs",)))


def test_as_long_as_can_be_said_is_possible(tmp_path: Path) -> None:
    make_table(tmp_path, "messages", [place("t", 1, NOW)])
    assert done(tmp_path, keep_days={"messages": 36_500}, keep_versions=36_500 * DAY).rows_removed == 0


def test_a_pipeline_may_write_meanwhile(tmp_path: Path) -> None:
    """Each of its batches is there once, of what is not too old."""
    folder = DeltaFolder(tmp_path)
    messages, throughput = TABLES["messages"], TABLES["job_throughput"]
    is_over = threading.Event()
    told = {"messages": 0, "jobs": 0}

    def append() -> None:
        while not is_over.is_set():
            batch = told["messages"] + 1
            row = {**dict.fromkeys(messages.columns.names), **place("t", batch, NOW - batch % 3 * DAY)}
            with DateFiles(tmp_path, "messages", messages.columns) as files:
                files.write(pa.RecordBatch.from_pylist([row], schema=messages.columns).drop_columns(["date"]))
            assert folder.append(messages, files.written, Stamp("messages", batch))
            told["messages"] = batch

    def fold() -> None:
        while not is_over.is_set():
            batch = told["jobs"] + 1
            row = {**dict.fromkeys(throughput.columns.names, 1), "tenant": f"tenant-{batch % 5}", "minute": NOW}
            assert folder.fold(throughput, pa.Table.from_pylist([row], throughput.columns), Stamp("jobs", batch))
            told["jobs"] = batch

    for table in (messages, throughput):
        folder.open(table)
    with concurrent.futures.ThreadPoolExecutor() as threads:
        writers = [threads.submit(append), threads.submit(fold)]
        try:
            for _ in range(3):
                list(maintain(tmp_path, Upkeep(keep_versions=dt.timedelta(hours=1), keep_days={"messages": 1}), NOW))
        finally:
            is_over.set()
    for writer in writers:
        writer.result()
    tables = Tables(tmp_path)
    assert folder.last_batch(messages, "messages") == told["messages"]
    wanted = [number for number in range(1, told["messages"] + 1) if number % 3 < 2]
    found = tables.query(f"""select "offset" from messages where date >= '{NOW.date() - DAY}' order by 1""")
    assert [offset for (offset,) in found] == wanted
    assert list(tables.query("select sum(stored) from job_throughput")) == [(told["jobs"],)]
