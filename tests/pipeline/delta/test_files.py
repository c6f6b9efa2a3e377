"""Files of tables, as tasks write them."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from slipstream.pipeline.delta import DateFiles

COLUMNS = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("envelope", pa.struct([("run_id", pa.string())])),
        ("date", pa.date32()),
    ]
)
MIDNIGHT = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)


def rows(first: int, *times: dt.datetime, run_id: str | None = None) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [
            {
                "topic": "orders",
                "partition": 0,
                "offset": first + number,
                "timestamp": time,
                "envelope": None if run_id is None else {"run_id": run_id},
            }
            for number, time in enumerate(times)
        ],
        schema=pa.schema([field for field in COLUMNS if field.name != "date"]),
    )


def test_every_day_has_a_file(tmp_path: Path) -> None:
    with DateFiles(tmp_path, "messages", COLUMNS) as files:
        files.write(rows(0, MIDNIGHT - dt.timedelta(seconds=1), MIDNIGHT))
        files.write(rows(2, MIDNIGHT + dt.timedelta(hours=1)))
    assert {one.date: one.rows for one in files.written} == {"2026-02-28": 1, "2026-03-01": 2}
    for one in files.written:
        found = pq.ParquetFile(tmp_path / "messages" / one.path)
        assert found.metadata.num_rows == one.rows
        assert (tmp_path / "messages" / one.path).stat().st_size == one.size
        assert "date" not in found.schema_arrow.names


def test_a_file_says_between_what_its_rows_lie(tmp_path: Path) -> None:
    with DateFiles(tmp_path, "messages", COLUMNS) as files:
        files.write(rows(7, MIDNIGHT, MIDNIGHT + dt.timedelta(microseconds=5)))
    stats = json.loads(files.written[0].stats)
    assert stats["minValues"] == {"partition": 0, "offset": 7, "timestamp": "2026-03-01T00:00:00.000000Z"}
    assert stats["maxValues"] == {"partition": 0, "offset": 8, "timestamp": "2026-03-01T00:00:00.000005Z"}


def test_it_is_known_whether_any_row_has_a_struct(tmp_path: Path) -> None:
    with DateFiles(tmp_path, "messages", COLUMNS) as files:
        files.write(rows(0, MIDNIGHT))
        files.write(rows(1, MIDNIGHT + dt.timedelta(days=1), run_id="r1"))
    assert [one.filled for one in sorted(files.written, key=lambda one: one.date)] == [(), ("envelope",)]


def test_an_attempt_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), DateFiles(tmp_path, "messages", COLUMNS) as files:
        files.write(rows(0, MIDNIGHT))
        _ = 1 / 0
    assert not list(tmp_path.rglob("*.parquet"))
