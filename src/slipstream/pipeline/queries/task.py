"""What a task does: reads ranges of the log, decodes them, and writes files."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from slipstream.pipeline.delta.files import Written
from slipstream.pipeline.source.range import Range

if TYPE_CHECKING:
    import pyarrow as pa

    from slipstream.pipeline.decode import Decoded
    from slipstream.pipeline.delta import DateFiles

DONE = "done string"
"""The schema of what a task gives back: one `Done` as JSON."""


class Done(msgspec.Struct, frozen=True):
    """What a task has read, and what it has written of it."""

    ranges: list[Range]
    written: list[Written]
    lost: list[Range] = []
    """Of the ranges, what went while they were read."""


class Order(msgspec.Struct, frozen=True):
    """What the driver wants of a task; it goes to executors with the function."""

    options: Mapping[str, str]
    """Of the connector."""
    root: str
    """The folder of the tables."""
    kinds: Mapping[str, str]
    """Topic → what its messages are. Of other topics they are kept as they are."""
    day: str = ""
    """Only what was stored on this day, if it is said."""


def writer(order: Order) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for `mapInArrow`."""

    def write(ranges: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from slipstream.pipeline.source import open_log  # noqa: PLC0415

        files = _Files(Path(order.root))
        read = [Range(**row) for batch in ranges for row in batch.to_pylist()]
        with open_log(order.options) as log, files:
            for asked in read:
                for messages in log.read(asked):
                    _sort(order, asked.incarnation, _of_day(messages, order.day), files)
        yield _told(Done(read, files.written()))

    return write


def rewriter(root: str, table: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for `mapInArrow` that writes rows of a table into files as they are."""

    def write(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        files = _Files(Path(root))
        with files:
            for batch in rows:
                if batch.num_rows:
                    files.of(table).write(batch)
        yield _told(Done([], files.written()))

    return write


def _told(done: Done) -> pa.RecordBatch:
    import pyarrow as pa  # noqa: PLC0415

    return pa.record_batch({"done": pa.array([msgspec.json.encode(done).decode()], pa.string())})


class _Files(contextlib.ExitStack):
    """By table, opened when something is to be written."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self._root = root
        self._open: dict[str, DateFiles] = {}

    def of(self, name: str) -> DateFiles:
        from slipstream.pipeline.delta import DateFiles  # noqa: PLC0415
        from slipstream.pipeline.tables import TABLES  # noqa: PLC0415

        if name not in self._open:
            self._open[name] = self.enter_context(DateFiles(self._root, name, TABLES[name].columns))
        return self._open[name]

    def written(self) -> list[Written]:
        return [one for files in self._open.values() for one in files.written]


def _of_day(messages: pa.RecordBatch, day: str) -> pa.RecordBatch:
    if not day:
        return messages
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute as pc  # noqa: PLC0415

    dates = messages.column("timestamp").cast(pa.date32())
    return messages.filter(pc.equal(dates, pa.scalar(dt.date.fromisoformat(day), pa.date32())))


def _sort(order: Order, incarnation: str, messages: pa.RecordBatch, files: _Files) -> None:
    """Each message to the table it belongs to."""
    if not messages.num_rows:
        return
    import pyarrow as pa  # noqa: PLC0415

    from slipstream.pipeline.decode import decode_progress, decode_protobuf  # noqa: PLC0415
    from slipstream.pipeline.tables.jobs import TABLE_OF  # noqa: PLC0415

    kind = order.kinds.get(messages.column("topic")[0].as_py())
    if kind is None:
        column = pa.repeat(pa.scalar(incarnation, pa.string()), messages.num_rows)
        files.of("messages").write(messages.append_column("incarnation", column))
        return
    values = messages.column("value")
    if kind == "Progress":
        decoded, table = decode_progress(values), "slip_events"
    else:
        decoded, table = decode_protobuf(kind, values), TABLE_OF[kind].name
    files.of(table).write(_placed(messages, decoded))
    if decoded.refused:
        files.of("quarantine").write(_refused(messages, decoded, kind))


def _placed(messages: pa.RecordBatch, decoded: Decoded) -> pa.RecordBatch:
    import pyarrow as pa  # noqa: PLC0415

    place = messages.select(["topic", "partition", "offset", "timestamp"])
    if len(decoded.rows) != messages.num_rows or decoded.refused:
        place = place.take(decoded.rows)
    columns = decoded.columns
    return pa.record_batch([*place.columns, *columns.columns], schema=pa.schema([*place.schema, *columns.schema]))


def _refused(messages: pa.RecordBatch, decoded: Decoded, kind: str) -> pa.RecordBatch:
    import pyarrow as pa  # noqa: PLC0415

    rows = sorted(decoded.refused)
    found = messages.select(["topic", "partition", "offset", "timestamp", "key", "value", "headers"]).take(
        pa.array(rows, pa.int64())
    )
    reasons = pa.array([decoded.refused[row] for row in rows], pa.string())
    return found.append_column("kind", pa.repeat(pa.scalar(kind), len(rows))).append_column("reason", reasons)
