"""What can be said of the tables, and what they answer."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from slipstream.pipeline.looking import NoSuchTable, QueryRefused, TableInfo, Tables
from slipstream.pipeline.looking.answer import value_text
from slipstream.pipeline.looking.folder import type_text
from slipstream.pipeline.tables import TABLES
from tests.pipeline.sample_tables import END, make_all, make_far, make_table, place


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    root = tmp_path_factory.mktemp("tables")
    make_all(root)
    (root / "_checkpoints" / "jobs").mkdir(parents=True, exist_ok=True)
    return Tables(root)


def test_tables_are_named_in_the_order_of_the_registry(tables: Tables) -> None:
    assert tables.names == list(TABLES)


def test_a_table_is_described_without_reading_it(tables: Tables) -> None:
    info = tables.info("messages")
    assert (info.layer, info.rows, info.files, info.version) == ("bronze", 50, 5, 5)
    assert info.batches == {"messages": 8}
    assert info.partitions == ("2026-03-14",)
    assert info.newest == END.replace(second=0) - dt.timedelta(hours=3) + 49 * dt.timedelta(seconds=7)
    assert info.bytes == sum(path.stat().st_size for path in tables.root.glob("messages/*/*.parquet"))


def test_the_newest_of_a_table_of_days_is_the_beginning_of_its_last(tables: Tables) -> None:
    assert tables.info("tenant_usage").newest == dt.datetime(2026, 3, 14, tzinfo=dt.UTC)


def test_a_table_whose_files_have_no_statistics_is_counted(tmp_path: Path) -> None:
    at = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
    rows = pa.Table.from_pylist([{**place("t", 1, at), "key": b"k"}], schema=TABLES["quarantine"].columns)
    config: dict[str, str | None] = {"delta.dataSkippingNumIndexedCols": "0"}
    write_deltalake(str(tmp_path / "quarantine"), rows, partition_by=["date"], configuration=config)
    info = Tables(tmp_path).info("quarantine")
    assert (info.rows, info.newest) == (1, at)
    assert len(list(Tables(tmp_path).sample("quarantine", 5))) == 1


def test_an_empty_table_has_no_newest(tmp_path: Path) -> None:
    make_table(tmp_path, "stuck_slips")
    info = Tables(tmp_path).info("stuck_slips")
    assert (info.rows, info.newest, info.batches) == (0, None, {})
    assert list(Tables(tmp_path).sample("stuck_slips", 5)) == []


def test_the_newest_rows_are_shown(tables: Tables) -> None:
    newest = list(tables.sample("messages", 3).dicts())
    assert [row["offset"] for row in newest] == [49, 48, 47]
    assert [row["offset"] for row in tables.sample("messages", 2, "key = 'user:1'").dicts()] == [46, 41]
    assert len(list(tables.sample("messages", 1000))) == 50
    assert list(tables.sample("messages", 0)) == []


@pytest.mark.parametrize("time_us", [-98_217_187_199_000_000, 316_516_204_800_000_000])
def test_a_table_with_times_that_python_has_not_is_described_and_shown(tmp_path: Path, time_us: int) -> None:
    names = ["slip_runs", "tenant_usage"]
    make_all(tmp_path)
    make_far(tmp_path, time_us, names=names)
    tables = Tables(tmp_path)
    for name in names:
        info = tables.info(name)
        assert msgspec.json.decode(msgspec.json.encode(info), type=TableInfo) == info
        count = info.rows
        assert len(list(tables.sample(name, 1_000))) == count
        shown = [value_text(value) for row in tables.sample(name, 1_000) for value in row]
        assert [text for text in shown if text.startswith(("-1143-08-15", "+12000-01-01"))]


def test_tables_are_joined(tables: Tables) -> None:
    sql = """select r.type, count(*) from slip_steps s join slip_runs r using (correlation_id, run)
             where s.state = 'done' group by all"""
    assert list(tables.query(sql)) == [("order.v1", 5)]


def test_values_come_as_people_know_them(tables: Tables) -> None:
    sql = """select headers, value, "timestamp", date, sum("offset") over () as whole, interval 90 minute as span
             from messages where "offset" = 3"""
    (row,) = tables.query(sql).dicts()
    assert row["headers"] == {"traceparent": "00-1"}
    assert row["value"] == b"\xff\xfe\x00"
    assert row["timestamp"] == END.replace(second=21) - dt.timedelta(hours=3)
    assert row["date"] == dt.date(2026, 3, 14)
    assert row["whole"] == 3
    assert isinstance(row["whole"], int)
    assert row["span"] == "1:30:00"


def test_times_are_cut_by_utc(tables: Tables) -> None:
    sql = "select date_trunc('day', minute) as day from job_throughput group by day"
    assert list(tables.query(sql)) == [(dt.datetime(2026, 3, 14, tzinfo=dt.UTC),)]


def test_the_pipelines_own_columns_are_hidden_unless_they_are_wanted(tables: Tables) -> None:
    assert not [name for name in tables.query("select * from slip_steps").columns if name.startswith("_")]
    assert "_order" in tables.query("select * from slip_steps", everything=True).columns
    assert "_order" not in [column.name for column in tables.columns("slip_steps")]
    assert "_order" in [column.name for column in tables.columns("slip_steps", everything=True)]
    with pytest.raises(QueryRefused, match="_order"):
        tables.query("select _order from slip_steps")


def test_more_than_was_asked_for_is_known(tables: Tables) -> None:
    answer = tables.query('select "offset" from messages order by 1', limit=2)
    assert list(answer) == [(0,), (1,)]
    assert answer.more
    answer = tables.query('select "offset" from messages', limit=50)
    assert len(list(answer)) == 50
    assert not answer.more


@pytest.mark.parametrize(
    "sql", ["describe messages", "show tables", "summarize messages", "explain select 1", "from messages", "values (1)"]
)
def test_whatever_reads_is_answered(tables: Tables, sql: str) -> None:
    assert list(tables.query(sql, limit=5))


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("create table x as select 1", "tables are only read here, and this is CREATE"),
        ("copy messages to 'x.csv'", "this is COPY"),
        ("set threads = 1", "this is SET"),
        ("select 1; select 2", "one statement at a time"),
        ("", "nothing is asked"),
        ("select * from read_csv('/etc/hostname')", "disabled by configuration"),
        ("select * from '/etc/hostname'", "there is no table /etc/hostname"),
        ("select * from message", "there is no table message; there are messages, download_tasks"),
        ("select nope from quarantine", "quarantine has topic, partition, offset"),
        ("select * from messages where offset = 1", 'as a column it is "offset", in quotes'),
        ("selec 1", "syntax error"),
        ("select cast(topic as int) from messages", "Could not convert string 'orders'"),
    ],
)
def test_what_is_wrong_with_a_query_is_said(tables: Tables, sql: str, said: str) -> None:
    with pytest.raises(QueryRefused) as refused:
        list(tables.query(sql))
    assert said in str(refused.value)


def test_variables_of_python_are_no_tables(tables: Tables) -> None:
    secret = pa.table({"a": [1]})
    with pytest.raises(QueryRefused, match="there is no table secret"):
        tables.query("select * from secret")
    assert secret.num_rows == 1


def test_where_there_are_none_it_is_said_how_to_make_them(tmp_path: Path) -> None:
    for tables in (Tables(tmp_path), Tables(tmp_path / "nowhere")):
        assert tables.names == []
        with pytest.raises(NoSuchTable, match="slipstream pipeline run"):
            tables.query("select 1")
        with pytest.raises(NoSuchTable, match="slipstream pipeline run"):
            tables.info("messages")


def test_a_table_that_was_not_made_yet_is_empty(tmp_path: Path) -> None:
    make_table(tmp_path, "stuck_slips")
    tables = Tables(tmp_path)
    assert list(tables.query("select count(*) from job_logs join stuck_slips using (trace_id)")) == [(0,)]
    with pytest.raises(NoSuchTable, match="job_logs is not there yet"):
        tables.info("job_logs")


def test_tables_of_others_are_seen_too(tmp_path: Path) -> None:
    make_table(tmp_path, "stuck_slips")
    write_deltalake(str(tmp_path / "my notes"), pa.table({"a": ["x"]}))
    tables = Tables(tmp_path)
    assert tables.names == ["stuck_slips", "my notes"]
    assert tables.info("my notes").layer == ""
    assert list(tables.query('select * from "my notes"')) == [("x",)]
    assert list(tables.sample("my notes", 3)) == [("x",)]


def test_a_folder_of_a_partition_may_have_any_name(tmp_path: Path) -> None:
    """In the log of a table it is written as in an address."""
    rows = pa.table({"what": ["a b", "c/d", "é%2B+"], "number": [1, 2, 3]})
    write_deltalake(str(tmp_path / "notes"), rows, partition_by=["what"])
    found = Tables(tmp_path).query("select what, number from notes order by number")
    assert list(found) == [("a b", 1), ("c/d", 2), ("é%2B+", 3)]


def test_a_column_that_came_later_is_null_in_what_was_written_before(tmp_path: Path) -> None:
    path = str(tmp_path / "stuck_slips")
    write_deltalake(path, pa.table({"correlation_id": ["old"]}))
    new = pa.table({"correlation_id": ["new"], "step": ["charge"]})
    write_deltalake(path, new, mode="append", schema_mode="merge")
    rows = Tables(tmp_path).query("select correlation_id, step from stuck_slips order by 1")
    assert list(rows) == [("new", "charge"), ("old", None)]


def test_a_column_that_is_in_no_file_yet_is_null(tmp_path: Path) -> None:
    path = str(tmp_path / "stuck_slips")
    write_deltalake(path, pa.table({"correlation_id": ["old"]}))
    write_deltalake(path, TABLES["stuck_slips"].columns.empty_table(), mode="append", schema_mode="merge")
    assert list(Tables(tmp_path).query("select correlation_id, since from stuck_slips")) == [("old", None)]


def test_a_struct_that_has_gained_a_field_is_read_in_old_files_too(tmp_path: Path) -> None:
    def rows(task: dict[str, object], kind: pa.DataType) -> pa.Table:
        return pa.table({"offset": [len(task)], "task": pa.array([task], kind)})

    path = str(tmp_path / "dead_letters")
    write_deltalake(path, rows({"job_id": "old"}, pa.struct([("job_id", pa.string())])))
    wide = pa.struct([("job_id", pa.string()), ("colour", pa.string())])
    write_deltalake(path, rows({"job_id": "new", "colour": "red"}, wide), mode="append", schema_mode="merge")
    found = Tables(tmp_path).query("select task.job_id, task.colour, task from dead_letters order by 1").dicts()
    assert [row["task"] for row in found] == [{"job_id": "new", "colour": "red"}, {"job_id": "old", "colour": None}]


def test_what_only_others_can_read_is_said(tmp_path: Path) -> None:
    path = str(tmp_path / "stuck_slips")
    write_deltalake(path, pa.table({"correlation_id": ["x"]}))
    first = tmp_path / "stuck_slips" / "_delta_log" / "00000000000000000000.json"
    protocol = '{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["deletionVectors"],'
    lines = [line for line in first.read_text().splitlines() if '"protocol"' not in line]
    first.write_text("\n".join([protocol + '"writerFeatures":["deletionVectors"]}}', *lines]))
    with pytest.raises(QueryRefused, match="stuck_slips has deletionVectors, which only other programs can read"):
        Tables(tmp_path).query("select * from stuck_slips")


def test_an_answer_is_of_one_version(tmp_path: Path) -> None:
    at = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
    make_table(tmp_path, "quarantine", [place("t", 1, at)])
    tables = Tables(tmp_path)
    tables.info("quarantine")
    make_table(tmp_path, "quarantine", [place("t", 2, at)])
    assert list(tables.query("select count(*) from quarantine")) == [(1,)]
    assert list(Tables(tmp_path).query("select count(*) from quarantine")) == [(2,)]
    assert DeltaTable(str(tmp_path / "quarantine")).version() == 2


def test_types_have_the_names_that_spark_gives_them() -> None:
    kinds = {
        "bigint": pa.int64(),
        "int": pa.int32(),
        "timestamp": pa.timestamp("us", "UTC"),
        "map<string, bigint>": pa.map_(pa.string(), pa.int64()),
        "array<string>": pa.list_(pa.string()),
        "array<struct<name: string>>": pa.list_(pa.struct([("name", pa.string())])),
        "struct": pa.struct([("a", pa.string())]),
        "double": pa.float64(),
        "boolean": pa.bool_(),
        "date": pa.date32(),
        "binary": pa.binary(),
    }
    assert [type_text(kind) for kind in kinds.values()] == list(kinds)
