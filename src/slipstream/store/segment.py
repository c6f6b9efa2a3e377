"""Segments: the settled part of a partition, one Arrow IPC file per range, compressed, read a page at a time.

The columns are what Spark and every other Arrow reader see: offset, timestamp, key, value, meta.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

import google_crc32c

from slipstream.record import LogUnreadable, Record
from slipstream.store.checkpoint import SegmentInfo
from slipstream.store.damage import Damaged
from slipstream.store.disk import Disk

if TYPE_CHECKING:
    import pyarrow as pa

PAGE_ROWS = 512
PAGE_BYTES = 1 << 20


def write_segment(
    directory: Path,
    disk: Disk,
    *,
    topic_id: int,
    topic: str,
    partition: int,
    first_index: int,
    start_bytes: int,
    records: Sequence[Record],
    mark: str = "",
) -> SegmentInfo:
    """Writes the records, which are consecutive in their partition, and syncs them."""
    import pyarrow as pa  # noqa: PLC0415 - a quarter of a second that a start without segments need not pay

    sink = pa.BufferOutputStream()
    pages = page_starts(records)
    with pa.ipc.new_file(sink, _schema(), options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        for start, end in zip(pages, [*pages[1:], len(records)], strict=True):
            writer.write_batch(to_batch(records[start:end]))
    data: bytes = sink.getvalue().to_pybytes()
    relative = segment_path(topic_id, topic, partition, first_index, len(records), mark)
    path = directory / relative
    disk.make_directory(path.parent)
    disk.replace_file(path, [data])
    payload_bytes = sum(record.size for record in records)
    return SegmentInfo(
        topic_id=topic_id,
        partition=partition,
        path=relative,
        first_index=first_index,
        count=len(records),
        first_offset=records[0].offset,
        last_offset=records[-1].offset,
        last_timestamp_ms=max(record.timestamp_ms for record in records),
        payload_bytes=payload_bytes,
        end_bytes=start_bytes + payload_bytes,
        file_bytes=len(data),
        crc=google_crc32c.value(data),
        pages=pages,
    )


def segment_path(topic_id: int, topic: str, partition: int, first_index: int, count: int, mark: str = "") -> str:
    """Relative to the data directory; `mark` keeps what a repair writes apart from what was there."""
    return f"segments/{topic_id}-{topic}/{partition}/{first_index:016d}-{count}{mark}.arrow"


def topic_directories(directory: Path) -> dict[int, Path]:
    """Topic id → where its segments are, for every topic that has any."""
    found = {}
    for path in (directory / "segments").glob("*-*"):
        number = path.name.partition("-")[0]
        if number.isdigit() and path.is_dir():
            found[int(number)] = path
    return found


_CHECK_BYTES = 1 << 20
"""Read at a time: checked in another thread, a large file would otherwise keep the interpreter from the broker."""


def check_segment(directory: Path, info: SegmentInfo) -> None:
    """Raises Damaged unless the file is what was written."""
    path = directory / info.path
    length = crc = 0
    try:
        with path.open("rb") as file:
            while piece := file.read(_CHECK_BYTES):
                length += len(piece)
                crc = google_crc32c.extend(crc, piece)
    except FileNotFoundError:
        raise Damaged(path, 0, f"the segment is missing; it holds {describe(info)}") from None
    if length != info.file_bytes:
        raise Damaged(path, length, f"the segment should have {info.file_bytes} bytes; it holds {describe(info)}")
    if crc != info.crc:
        raise Damaged(path, 0, f"the segment does not match its checksum; it holds {describe(info)}")


def describe(info: SegmentInfo) -> str:
    return f"{info.count} messages of partition {info.partition}, offsets {info.first_offset} to {info.last_offset}"


def open_segment(directory: Path, info: SegmentInfo) -> tuple[pa.MemoryMappedFile, pa.ipc.RecordBatchFileReader]:
    import pyarrow as pa  # noqa: PLC0415

    source = pa.memory_map(str(directory / info.path))
    return source, page_reader(source)


def page_reader(source: pa.MemoryMappedFile) -> pa.ipc.RecordBatchFileReader:
    """Pages are small: to share one out to threads took three times as long as to read it."""
    import pyarrow as pa  # noqa: PLC0415

    return pa.ipc.open_file(source, options=pa.ipc.IpcReadOptions(use_threads=False))


def read_page(directory: Path, info: SegmentInfo, page: int) -> list[Record]:
    source, reader = open_segment(directory, info)
    with source:
        return to_records(reader.get_batch(page))


def read_segment(directory: Path, info: SegmentInfo) -> list[Record]:
    return [record for page in range(len(info.pages)) for record in read_page(directory, info, page)]


def payload_before(directory: Path, info: SegmentInfo, row: int) -> int:
    """Key and value bytes of the rows before `row`, from the lengths alone: no value becomes a Python object."""
    page = page_of(info, row)
    if 2 * row <= info.count:
        batches = _columns(directory, info, [_KEY, _VALUE], 0, page + 1)
        return sum(payload_bytes(batch, row - start) for start, batch in batches)
    # The way from the end is shorter.
    after = 0
    for start, batch in _columns(directory, info, [_KEY, _VALUE], page, len(info.pages)):
        after += payload_bytes(batch) - payload_bytes(batch, max(0, row - start))
    return info.payload_bytes - after


def first_row_at(directory: Path, info: SegmentInfo, timestamp_ms: int, from_row: int) -> int | None:
    """The first row at or after `from_row` that was stored at this time or later.

    Page by page, though only this one column: a segment may hold both sides of a clock that was set back, so that no
    search may leave any of it out.
    """
    for start, batch in _columns(directory, info, [_TIMESTAMP], page_of(info, from_row), len(info.pages)):
        column = batch.column(0)
        times = memoryview(column.buffers()[1]).cast("q")[column.offset : column.offset + len(column)]
        if max(times) < timestamp_ms:
            continue
        for row, time_ms in enumerate(times, start):
            if row >= from_row and time_ms >= timestamp_ms:
                return row
    return None


def first_offset_at(directory: Path, info: SegmentInfo, timestamp_ms: int, from_row: int) -> int | None:
    """The offset of that row."""
    row = first_row_at(directory, info, timestamp_ms, from_row)
    if row is None:
        return None
    page = page_of(info, row)
    ((start, batch),) = _columns(directory, info, [_OFFSET], page, page + 1)
    offset: int = batch.column(0)[row - start].as_py()
    return offset


def page_of(info: SegmentInfo, row: int) -> int:
    return bisect_right(info.pages, row) - 1


def payload_bytes(batch: pa.RecordBatch, rows: int | None = None) -> int:
    """Key and value bytes of the first `rows` rows: what lies between two of the column's offsets."""
    end = batch.num_rows if rows is None else min(rows, batch.num_rows)
    return sum(ends[end] - ends[0] for ends in map(value_ends, (batch.column("key"), batch.column("value"))))


def value_ends(column: pa.BinaryArray) -> memoryview:
    """Arrow's own table: value i lies from entry i to entry i + 1."""
    return memoryview(column.buffers()[1]).cast("i")[column.offset : column.offset + len(column) + 1]


_OFFSET, _TIMESTAMP, _KEY, _VALUE = 0, 1, 2, 3


def _columns(
    directory: Path, info: SegmentInfo, fields: list[int], first_page: int, end_page: int
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Only these columns of those pages, each with the row it starts at."""
    import pyarrow as pa  # noqa: PLC0415

    options = pa.ipc.IpcReadOptions(included_fields=fields, use_threads=False)
    with pa.memory_map(str(directory / info.path)) as source:
        reader = pa.ipc.open_file(source, options=options)
        for page in range(first_page, end_page):
            yield info.pages[page], reader.get_batch(page)


class LastPage:
    """The page that was read last, and of which log."""

    __slots__ = ("end_index", "first_index", "log", "records")

    def __init__(self, log: object, first_index: int, records: Sequence[Record]) -> None:
        self.log = log
        self.first_index = first_index
        self.end_index = first_index + len(records)
        self.records = records


class PageCache:
    """Recently read pages, and which files have been checked since the start."""

    def __init__(self, directory: Path, pages_max: int) -> None:
        self.directory = directory
        self.pages_max = pages_max
        self._pages: OrderedDict[tuple[str, int], list[Record]] = OrderedDict()
        self._checked: set[str] = set()
        self.last = LastPage(None, 0, ())
        self._open: tuple[str, pa.MemoryMappedFile, pa.ipc.RecordBatchFileReader] | None = None
        """The segment that was read last: the next page is mostly of the same one."""

    def read(self, log: object, info: SegmentInfo, index: int) -> Record:
        row = index - info.first_index
        page = page_of(info, row)
        records = self.page(info, page)
        self.last = LastPage(log, info.first_index + info.pages[page], records)
        return records[row - info.pages[page]]

    def page(self, info: SegmentInfo, page: int) -> list[Record]:
        name = (info.path, page)
        records = self._pages.get(name)
        if records is not None:
            self._pages.move_to_end(name)
            return records
        records = self._load(info, page)
        self._pages[name] = records
        if len(self._pages) > self.pages_max:
            self._pages.popitem(last=False)
        return records

    def bytes_before(self, info: SegmentInfo, index: int) -> int:
        """Key and value bytes ever written to the partition before this record of the segment."""
        with self._reading(info):
            before = payload_before(self.directory, info, index - info.first_index)
        return info.end_bytes - info.payload_bytes + before

    def index_at(self, info: SegmentInfo, timestamp_ms: int, from_index: int) -> int | None:
        """The segment's first record at or after `from_index` that was stored at this time or later."""
        with self._reading(info):
            row = first_row_at(self.directory, info, timestamp_ms, max(0, from_index - info.first_index))
        return info.first_index + row if row is not None else None

    def forget(self, info: SegmentInfo) -> None:
        """The segment was merged or given up: nothing of it is read again."""
        if self._open is not None and self._open[0] == info.path:
            self._close()
        self.last = LastPage(None, 0, ())
        self._checked.discard(info.path)
        for page in range(len(info.pages)):
            self._pages.pop((info.path, page), None)

    def check(self, info: SegmentInfo) -> None:
        """Raises Damaged unless the file is what was written; once is enough.

        The one thing here that any thread may call: two that check the same file at once both come to the same end.
        """
        if info.path not in self._checked:
            check_segment(self.directory, info)
            self._checked.add(info.path)

    def _load(self, info: SegmentInfo, page: int) -> list[Record]:
        with self._reading(info):
            if self._open is None or self._open[0] != info.path:
                self._close()
                self._open = (info.path, *open_segment(self.directory, info))
            return to_records(self._open[2].get_batch(page))

    def _close(self) -> None:
        if self._open is not None:
            self._open[1].close()
            self._open = None

    @contextmanager
    def _reading(self, info: SegmentInfo) -> Iterator[None]:
        """Arrow files carry no checksum of their own, so each is checked whole before its first page is believed."""
        try:
            self.check(info)
            yield
        except (Damaged, OSError) as error:
            raise LogUnreadable(str(error)) from error


def page_starts(records: Sequence[Record]) -> list[int]:
    starts, end, size = [0], PAGE_ROWS, 0
    for row, record in enumerate(records):
        length = len(record.key) + len(record.value)
        if row >= end or (size and size + length > PAGE_BYTES):
            starts.append(row)
            end, size = row + PAGE_ROWS, 0
        size += length
    return starts


def _schema() -> pa.Schema:
    import pyarrow as pa  # noqa: PLC0415

    return pa.schema(
        [
            pa.field("offset", pa.int64(), nullable=False),
            pa.field("timestamp_ms", pa.int64(), nullable=False),
            pa.field("key", pa.binary(), nullable=False),
            pa.field("value", pa.binary(), nullable=False),
            pa.field("meta", pa.binary(), nullable=False),
        ]
    )


def to_records(batch: pa.RecordBatch) -> list[Record]:
    return list(map(Record, *(column.to_pylist() for column in batch.columns)))


def to_batch(records: Sequence[Record]) -> pa.RecordBatch:
    """From buffers: for a list `pyarrow` imports pandas where it is installed, which takes a second or more, once in
    the process that compacts and once in the broker's."""
    import pyarrow as pa  # noqa: PLC0415

    columns = [
        _numbers([record.offset for record in records]),
        _numbers([record.timestamp_ms for record in records]),
        _payloads([record.key for record in records]),
        _payloads([record.value for record in records]),
        _payloads([record.meta for record in records]),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_schema())


def _numbers(numbers: list[int]) -> pa.Int64Array:
    import pyarrow as pa  # noqa: PLC0415

    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(array("q", numbers))])


def _payloads(payloads: list[bytes]) -> pa.BinaryArray:
    import pyarrow as pa  # noqa: PLC0415

    ends = array("i", accumulate(map(len, payloads), initial=0))
    return pa.Array.from_buffers(
        pa.binary(), len(payloads), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(payloads))]
    )
