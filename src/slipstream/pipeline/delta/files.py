"""Parquet files of a table that is appended to, as tasks write them: nobody sees them until they are committed."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

COMPRESSION = "zstd"
COMPRESSION_LEVEL = 1
ROW_GROUP_ROWS = 128 * 1024
BUFFER_ROWS = 128 * 1024
BUFFER_BYTES = 64 << 20
"""What is held before a row group is written: of each table and day that a task writes."""

_STATISTICS = ("partition", "offset", "timestamp")
"""What readers leave out files by."""


class Written(msgspec.Struct, frozen=True):
    """A file that a task has written, and what a commit says of it."""

    table: str
    path: str
    """Relative to the folder of the table."""
    date: str
    size: int
    rows: int
    at_ms: int
    stats: str
    filled: tuple[str, ...] = ()
    """Structs that any row has: most messages have no envelope, and nobody need look for one."""


class DateFiles:
    """The files of one task for one table, one a date.

    Example:
        with DateFiles(Path("tables"), "messages", MESSAGES.columns) as files:
            files.write(batch)
        actions = files.written
    """

    def __init__(self, root: Path, table: str, columns: pa.Schema) -> None:
        self._root = root
        self._table = table
        self._columns = columns
        self._stored = pa.schema([field for field in columns if field.name != "date"])
        self._open: dict[dt.date, _DateFile] = {}
        self.written: list[Written] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Of any dates; `batch` has all columns but the date, in whatever order."""
        if not batch.num_rows:
            return
        batch = batch.select(self._stored.names).cast(self._stored)
        for date, rows in _by_date(batch):
            if date not in self._open:
                self._open[date] = _DateFile(self._root / self._table, date, self._stored)
            self._open[date].write(rows)

    def __enter__(self) -> DateFiles:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """What an attempt that failed has written is nobody's, and goes with it."""
        for file in self._open.values():
            if kind is None:
                self.written.append(file.close(self._table))
            else:
                file.discard()


def _by_date(batch: pa.RecordBatch) -> Iterator[tuple[dt.date, pa.RecordBatch]]:
    dates = batch.column("timestamp").cast(pa.date32())
    found = pc.min_max(dates).as_py()
    if found["min"] == found["max"]:
        yield found["min"], batch
        return
    for date in pc.unique(dates).to_pylist():
        yield date, batch.filter(pc.equal(dates, pa.scalar(date, pa.date32())))


class _DateFile:
    def __init__(self, folder: Path, date: dt.date, schema: pa.Schema) -> None:
        self._date = date.isoformat()
        self._relative = f"date={self._date}/part-{uuid.uuid4().hex}.parquet"
        self._path = folder / self._relative
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._writer = pq.ParquetWriter(
            self._path,
            schema,
            compression=COMPRESSION,
            compression_level=COMPRESSION_LEVEL,
            use_dictionary=_repeating(schema),
        )
        self._held: list[pa.RecordBatch] = []
        self._held_rows = self._held_bytes = 0
        self._rows = 0
        self._least: dict[str, object] = {}
        self._greatest: dict[str, object] = {}
        self._structs = [field.name for field in schema if pa.types.is_struct(field.type)]
        self._filled: set[str] = set()

    def write(self, batch: pa.RecordBatch) -> None:
        self._held.append(batch)
        self._held_rows += batch.num_rows
        self._held_bytes += batch.nbytes
        if self._held_rows >= BUFFER_ROWS or self._held_bytes >= BUFFER_BYTES:
            self._flush()

    def close(self, table: str) -> Written:
        self._flush()
        self._writer.close()
        found = self._path.stat()
        stats = {"numRecords": self._rows, "minValues": self._least, "maxValues": self._greatest, "nullCount": {}}
        return Written(
            table=table,
            path=self._relative,
            date=self._date,
            size=found.st_size,
            rows=self._rows,
            at_ms=int(found.st_mtime * 1000),
            stats=json.dumps(stats, default=_stat),
            filled=tuple(sorted(self._filled)),
        )

    def discard(self) -> None:
        self._writer.close()
        self._path.unlink(missing_ok=True)

    def _flush(self) -> None:
        if not self._held:
            return
        rows = pa.Table.from_batches(self._held)
        self._held, self._held_rows, self._held_bytes = [], 0, 0
        self._rows += rows.num_rows
        self._filled |= {name for name in self._structs if rows.column(name).null_count < rows.num_rows}
        for name in _STATISTICS:
            found = pc.min_max(rows.column(name)).as_py()
            least, greatest = self._least.get(name), self._greatest.get(name)
            self._least[name] = found["min"] if least is None else min(least, found["min"])
            self._greatest[name] = found["max"] if greatest is None else max(greatest, found["max"])
        self._writer.write_table(rows, row_group_size=ROW_GROUP_ROWS)


def _repeating(schema: pa.Schema) -> list[str]:
    """Columns of few different values. A dictionary of those that differ is built, filled, and thrown away."""
    unique = {"key", "value", "offset", "timestamp", "message", "timestamp_ms", "at", "index"}
    return [field.name for field in schema if pa.types.is_string(field.type) and field.name not in unique]


def _stat(value: object) -> str:
    assert isinstance(value, dt.datetime)
    return value.astimezone(dt.UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
