"""The log of one partition: segments on disk, then the records that only the journal and memory hold so far."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path

from slipstream.record import LogUnreadable, Record
from slipstream.store.checkpoint import SegmentInfo
from slipstream.store.segment import PageCache
from slipstream.store.slice import LogSlice, SegmentRows

_offset = attrgetter("offset")


class Chunk:
    """Consecutive records in memory."""

    __slots__ = ("first_index", "records")

    def __init__(self, first_index: int) -> None:
        self.first_index = first_index
        self.records: list[Record] = []

    @property
    def end_index(self) -> int:
        return self.first_index + len(self.records)


class StoredLog:
    """What the broker reads and appends to. Only the broker's thread touches it, but for what a slice asks of it."""

    __slots__ = ("cache", "first_index", "partition", "sealed", "segments", "start_bytes", "tail", "topic", "topic_id")

    def __init__(
        self, topic_id: int, topic: str, partition: int, segments: list[SegmentInfo], cache: PageCache
    ) -> None:
        self.topic_id = topic_id
        self.topic = topic
        self.partition = partition
        self.segments = segments
        self.cache = cache
        self.first_index = 0
        """The oldest record that retention has left."""
        self.sealed: list[Chunk] = []
        """Chunks on their way into segments, oldest first."""
        self.tail = Chunk(segments[-1].end_index if segments else 0)
        self.start_bytes = 0
        """Payload bytes written before the first record that only memory holds."""

    def append(self, record: Record) -> None:
        self.tail.records.append(record)

    def extend(self, records: Sequence[Record]) -> None:
        self.tail.records += records

    def read(self, index: int) -> Record:
        tail = self.tail
        if index >= tail.first_index:
            return tail.records[index - tail.first_index]
        last = self.cache.last
        if last.log is self and last.first_index <= index < last.end_index:
            return last.records[index - last.first_index]  # who reads one record mostly wants the next
        for chunk in self.sealed:
            if chunk.first_index <= index < chunk.end_index:
                return chunk.records[index - chunk.first_index]
        return self.cache.read(self, self._segment_of(index), index)

    def index_of(self, offset: int) -> int | None:
        for chunk in (*self.sealed, self.tail):
            if chunk.records and chunk.records[0].offset <= offset <= chunk.records[-1].offset:
                return _find(chunk.records, offset, chunk.first_index)
        for segment in self.segments:
            if segment.first_offset <= offset <= segment.last_offset:
                return self._index_in_segment(segment, offset)
        return None

    def offset_before(self, index: int) -> int:
        for segment in reversed(self.segments):
            if segment.end_index == index:
                return segment.last_offset
            if segment.end_index < index:
                break
        return self.read(index - 1).offset

    def index_from(self, offset: int) -> int:
        for segment in self.segments:
            if segment.last_offset >= offset:
                return max(self.first_index, self._index_in_segment_from(segment, offset))
        for chunk in (*self.sealed, self.tail):
            if chunk.records and chunk.records[-1].offset >= offset:
                at = bisect_left(chunk.records, offset, key=_offset)
                return max(self.first_index, chunk.first_index + at)
        return self.tail.end_index

    def index_at(self, timestamp_ms: int) -> int:
        for segment in self.segments:
            if segment.last_timestamp_ms >= timestamp_ms:
                index = self.cache.index_at(segment, timestamp_ms, self.first_index)
                if index is not None:
                    return index
        for chunk in (*self.sealed, self.tail):
            # One by one: what a restart brought back and what came since may be from two clocks.
            for index, record in enumerate(chunk.records, chunk.first_index):
                if record.timestamp_ms >= timestamp_ms and index >= self.first_index:
                    return index
        return self.tail.end_index

    def bytes_before(self, index: int) -> int:
        chunks = (*self.sealed, self.tail)
        if index < chunks[0].first_index:
            return self.cache.bytes_before(self._segment_of(index), index)
        assert index <= self.tail.end_index, f"no record {index} in {self.topic}/{self.partition}"
        before = self.start_bytes
        for chunk in chunks:
            records = chunk.records if index >= chunk.end_index else chunk.records[: max(0, index - chunk.first_index)]
            before += sum(len(record.key) + len(record.value) for record in records)
        return before

    def slice(self, first_index: int, end_index: int, limit_bytes: int) -> LogSlice:
        """The records from `first_index` (still there) up to `end_index` or `limit_bytes`, for another thread to read.

        What it refers to stays as it is: a list of segments is replaced, never changed, and records are copied out of
        theirs, which grows and is emptied when it has become a segment.
        """
        assert first_index >= self.first_index, f"record {first_index} was removed by retention"
        stored: list[SegmentRows] = []
        recent: list[Record] = []
        known_bytes = 0  # at least this much is in it already
        enough = False
        for segment in self.segments:
            first_row, end_row = _overlap(first_index, end_index, segment.first_index, segment.end_index)
            if first_row < end_row and not enough:
                stored.append(SegmentRows(segment, first_row, end_row))
                known_bytes += segment.payload_bytes if end_row - first_row == segment.count else 0
                enough = known_bytes >= limit_bytes
        for chunk in (*self.sealed, self.tail):
            first_row, end_row = _overlap(first_index, end_index, chunk.first_index, chunk.end_index)
            if first_row < end_row and not enough:
                recent += chunk.records[first_row:end_row]
        return LogSlice(first_index, limit_bytes, stored, recent, self)

    @property
    def directory(self) -> Path:
        return self.cache.directory

    def check(self, info: SegmentInfo) -> None:
        self.cache.check(info)

    def holds(self, info: SegmentInfo) -> bool:
        return any(segment.path == info.path for segment in self.segments)

    def start_at(self, index: int, payload_bytes: int) -> None:
        """The tail begins here: everything before it is in segments or gone."""
        assert not self.tail.records, "only an empty tail can be moved"
        if self.segments and self.segments[-1].end_index != index:
            last = self.segments[-1]
            raise LogUnreadable(f"the checkpoint counts {index} records and {last.path} ends at {last.end_index}")
        self.tail.first_index = index
        self.start_bytes = payload_bytes

    def seal(self) -> Chunk | None:
        """Closes the tail, to be written to a segment; None if it is empty."""
        if not self.tail.records:
            return None
        chunk = self.tail
        self.sealed.append(chunk)
        self.tail = Chunk(chunk.end_index)
        return chunk

    def adopt(self, segments: list[SegmentInfo], chunk: Chunk) -> None:
        """`chunk` is safe in a segment: from now on it is read from there."""
        self._replace_segments(segments)
        self.sealed.remove(chunk)
        self.start_bytes = segments[-1].end_bytes

    def drop_below(self, index: int) -> None:
        """Retention gave these up; the compactor removes the files."""
        self.first_index = index
        self._replace_segments(self.segments)

    def drop_all(self) -> Chunk:
        """The topic is gone. What a compaction under way makes of its records is not adopted either.

        Returns those that nobody needs any more; the others go when that compaction is through.
        """
        tail, self.tail = self.tail, Chunk(self.tail.end_index)
        self.drop_below(tail.end_index)
        return tail

    def _replace_segments(self, segments: list[SegmentInfo]) -> None:
        kept = [segment for segment in segments if segment.end_index > self.first_index]
        paths = {segment.path for segment in kept}
        for segment in self.segments:
            if segment.path not in paths:
                self.cache.forget(segment)
        self.segments = kept

    def _segment_of(self, index: int) -> SegmentInfo:
        for segment in reversed(self.segments):
            if segment.first_index <= index:
                assert index < segment.end_index, f"no record {index} in {self.topic}/{self.partition}"
                return segment
        raise AssertionError(f"record {index} of {self.topic}/{self.partition} was removed by retention")

    def _index_in_segment(self, segment: SegmentInfo, offset: int) -> int | None:
        page = self._page_of(segment, offset)
        return _find(self.cache.page(segment, page), offset, segment.first_index + segment.pages[page])

    def _index_in_segment_from(self, segment: SegmentInfo, offset: int) -> int:
        page = self._page_of(segment, offset)
        at = bisect_left(self.cache.page(segment, page), offset, key=_offset)
        return segment.first_index + segment.pages[page] + at

    def _page_of(self, segment: SegmentInfo, offset: int) -> int:
        """The last page that starts at or before this offset; the first if none does."""
        low, high = 0, len(segment.pages) - 1
        while low < high:
            middle = (low + high + 1) // 2
            if self.cache.page(segment, middle)[0].offset <= offset:
                low = middle
            else:
                high = middle - 1
        return low


def _overlap(first_index: int, end_index: int, part_first: int, part_end: int) -> tuple[int, int]:
    """What of a part lies in the range, counted from where the part begins; empty if none does."""
    return max(first_index, part_first) - part_first, min(end_index, part_end) - part_first


def _find(records: Sequence[Record], offset: int, first_index: int) -> int | None:
    at = bisect_left(records, offset, key=_offset)
    return first_index + at if at < len(records) and records[at].offset == offset else None
