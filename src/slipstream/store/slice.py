"""A range of a partition's records, taken in the broker's thread and read in another.

To read a segment takes as long as the disk takes, and the broker has no time to wait for it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate
from operator import add, attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from slipstream.record import LogUnreadable, Record
from slipstream.store.checkpoint import SegmentInfo
from slipstream.store.damage import Damaged
from slipstream.store.segment import first_offset_at, page_of, page_reader, to_batch, to_records, value_ends

if TYPE_CHECKING:
    import pyarrow as pa


RECENT_ROWS = 2_048
"""Of what is in no segment, in one batch: more records are more than the processor has cache for, and a batch of fewer
costs more than its rows."""


class SliceGone(Exception):
    """A segment was merged with another, or given up, before it was read: take the slice again."""


class SegmentRows(msgspec.Struct, frozen=True):
    """Some consecutive rows of a segment."""

    segment: SegmentInfo
    first_row: int
    end_row: int


class SegmentSource(Protocol):
    """Where the segments of a slice lie. Asked from any thread."""

    @property
    def directory(self) -> Path: ...

    def check(self, info: SegmentInfo) -> None:
        """Raises Damaged unless the file is what was written."""
        ...

    def holds(self, info: SegmentInfo) -> bool:
        """Whether the log still needs the file."""
        ...


class LogSlice:
    """Immutable, so any thread may read it, as often as it likes.

    It ends after the record that reaches `limit_bytes` of keys and values, so it has at least one record unless its
    range is empty. Reading raises LogUnreadable where the storage is damaged, and SliceGone where it has changed.
    """

    def __init__(
        self,
        first_index: int,
        limit_bytes: int,
        stored: list[SegmentRows],
        recent: list[Record],
        source: SegmentSource | None = None,
    ) -> None:
        self.first_index = first_index
        self.limit_bytes = limit_bytes
        self._stored = stored
        self._recent = recent
        self._source = source

    def records(self) -> list[Record]:
        budget = _Budget(self.limit_bytes)
        found = [record for batch in self._stored_batches(budget) for record in to_records(batch)]
        return found + budget.take_records(self._recent)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """As the segments have them, in pages of theirs: what is stored never becomes a Python object."""
        budget = _Budget(self.limit_bytes)
        yield from self._stored_batches(budget)
        records = budget.take_records(self._recent)
        for start in range(0, len(records), RECENT_ROWS):
            yield to_batch(records[start : start + RECENT_ROWS])

    def offset_at(self, timestamp_ms: int) -> int | None:
        """Of its first record that was stored at this time or later; whatever the limit, and only the columns that say
        so are read."""
        for rows in self._stored:
            if rows.segment.last_timestamp_ms >= timestamp_ms:
                assert self._source is not None
                with self._reading(rows.segment):
                    self._source.check(rows.segment)
                    offset = first_offset_at(self._source.directory, rows.segment, timestamp_ms, rows.first_row)
                if offset is not None:
                    return offset
        return next((record.offset for record in self._recent if record.timestamp_ms >= timestamp_ms), None)

    def _stored_batches(self, budget: _Budget) -> Iterator[pa.RecordBatch]:
        for rows in self._stored:
            if budget.is_spent:
                return
            with self._reading(rows.segment):
                yield from self._read(rows, budget)

    @contextmanager
    def _reading(self, segment: SegmentInfo) -> Iterator[None]:
        try:
            yield
        except (Damaged, OSError) as error:
            assert self._source is not None
            if self._source.holds(segment):
                raise LogUnreadable(str(error)) from error
            # Whatever is wrong with it, its records are elsewhere by now, or nowhere.
            raise SliceGone(f"{segment.path} was merged or removed") from error

    def _read(self, rows: SegmentRows, budget: _Budget) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa  # noqa: PLC0415

        assert self._source is not None
        info = rows.segment
        # Opened first: what is open can be read to its end, even if the file is removed meanwhile.
        with pa.memory_map(str(self._source.directory / info.path)) as file:
            self._source.check(info)
            reader = page_reader(file)
            for page in range(page_of(info, rows.first_row), page_of(info, rows.end_row - 1) + 1):
                if budget.is_spent:
                    return
                start = info.pages[page]
                batch = reader.get_batch(page)
                first, end = max(0, rows.first_row - start), min(batch.num_rows, rows.end_row - start)
                yield budget.take_batch(batch.slice(first, end - first))


_key, _value = attrgetter("key"), attrgetter("value")


class _Budget:
    """What is left of the limit. The record that uses it up is still taken."""

    def __init__(self, limit_bytes: int) -> None:
        self.left = limit_bytes
        self.is_spent = False

    def take_records(self, records: list[Record]) -> list[Record]:
        if self.is_spent or not records:
            return []
        # In C: a loop over the records took longer than to make Arrow of them.
        sizes = map(add, map(len, map(_key, records)), map(len, map(_value, records)))
        ends = list(accumulate(sizes))
        count = min(bisect_left(ends, self.left) + 1, len(records))
        self.left -= ends[count - 1]
        self.is_spent = self.left <= 0
        return records[:count]

    def take_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        keys, values = value_ends(batch.column("key")), value_ends(batch.column("value"))

        def payload(rows: int) -> int:
            return int(keys[rows] - keys[0] + values[rows] - values[0])

        rows = bisect_left(range(1, batch.num_rows), self.left, key=payload) + 1
        self.left -= payload(rows)
        self.is_spent = self.left <= 0
        return batch.slice(0, rows)
