from __future__ import annotations

from pathlib import Path

import pytest

from slipstream.record import LogUnreadable, Record
from slipstream.store import Disk, StoredLog
from slipstream.store.checkpoint import SegmentInfo
from slipstream.store.log import Chunk
from slipstream.store.segment import PAGE_ROWS, PageCache, write_segment
from tests.store.node import Node, flip


class Stored:
    """A log whose offsets have gaps, as those of a partition beside others do: record i has offset 3 i."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.log = StoredLog(1, "orders", 0, [], PageCache(directory, 8))
        self.count = 0
        self.time_ms = 0

    def append(self, count: int) -> None:
        for _ in range(count):
            self.log.append(Record(3 * self.count, self.time_ms, b"k" * (self.count % 3), b"%d" % self.count))
            self.count += 1
            self.time_ms += 2

    def seal(self) -> Chunk:
        chunk = self.log.seal()
        assert chunk is not None
        return chunk

    def to_segment(self, chunk: Chunk) -> SegmentInfo:
        segment = write_segment(
            self.directory,
            Disk(),
            topic_id=1,
            topic="orders",
            partition=0,
            first_index=chunk.first_index,
            start_bytes=self.log.start_bytes,
            records=chunk.records,
        )
        self.log.adopt([*self.log.segments, segment], chunk)
        return segment


@pytest.fixture
def stored(tmp_path: Path) -> Stored:
    """Two segments (the first with three pages), two sealed chunks and a tail."""
    stored = Stored(tmp_path)
    for count in (2 * PAGE_ROWS + 10, 20):
        stored.append(count)
        stored.to_segment(stored.seal())
    for _ in range(2):
        stored.append(15)
        stored.seal()
    stored.append(5)
    return stored


def test_every_record_is_read_wherever_it_lies(stored: Stored) -> None:
    assert [stored.log.read(index).value for index in range(stored.count)] == [b"%d" % n for n in range(stored.count)]


def test_every_offset_is_found_and_none_between_them(stored: Stored) -> None:
    for index in range(stored.count):
        assert stored.log.index_of(3 * index) == index
        assert stored.log.index_of(3 * index + 1) is None
        assert stored.log.index_of(3 * index + 2) is None
    assert stored.log.index_of(3 * stored.count) is None


def test_the_first_record_from_an_offset_on_is_found(stored: Stored) -> None:
    for index in range(stored.count):
        for offset in (3 * index - 2, 3 * index - 1, 3 * index):
            assert stored.log.index_from(offset) == index
    assert stored.log.index_from(3 * stored.count) == stored.count


def test_the_first_record_from_a_time_on_is_found(stored: Stored) -> None:
    for index in range(stored.count):
        assert stored.log.index_at(2 * index - 1) == stored.log.index_at(2 * index) == index
    assert stored.log.index_at(2 * stored.count) == stored.count


def test_a_clock_set_back_hides_nothing_from_a_search_by_time(tmp_path: Path) -> None:
    """Within a segment, between segments and in memory."""
    stored = Stored(tmp_path)
    for time_ms in (1_000, 0):
        stored.time_ms = time_ms
        stored.append(PAGE_ROWS)
    stored.to_segment(stored.seal())
    stored.time_ms = 5_000
    stored.append(10)
    stored.to_segment(stored.seal())
    for time_ms in (4_000, 10_000, 9_000):
        stored.time_ms = time_ms
        stored.append(10)
    times = [stored.log.read(index).timestamp_ms for index in range(stored.count)]
    for time_ms in (0, 1, 999, 1_000, 1_001, 2_000, 2_022, 2_023, 4_000, 5_018, 5_019, 9_018, 10_018, 10_019):
        expected = next((index for index, at in enumerate(times) if at >= time_ms), stored.count)
        assert stored.log.index_at(time_ms) == expected


def test_the_bytes_before_every_record_are_those_that_were_written(stored: Stored) -> None:
    total = 0
    for index in range(stored.count):
        assert stored.log.bytes_before(index) == total
        total += stored.log.read(index).size
    assert stored.log.bytes_before(stored.count) == total


def test_what_retention_dropped_is_counted_and_not_found(stored: Stored) -> None:
    """Whole segments, a part of one (it was merged with what was given up), all of them."""
    first, second = stored.log.segments
    sizes = [stored.log.read(index).size for index in range(stored.count)]
    for dropped in (5, first.end_index, first.end_index + 3, second.end_index):
        stored.log.drop_below(dropped)
        assert stored.log.index_from(0) == stored.log.index_at(0) == dropped
        assert stored.log.index_from(3 * dropped + 1) == stored.log.index_at(2 * dropped + 1) == dropped + 1
        for index in range(dropped, stored.count + 1):
            assert stored.log.bytes_before(index) == sum(sizes[:index])


def test_a_log_without_records_ends_where_it_starts(tmp_path: Path) -> None:
    log = Stored(tmp_path).log
    assert (log.index_from(0), log.index_at(0), log.bytes_before(0)) == (0, 0, 0)
    log.start_at(7, 70)
    assert (log.index_from(0), log.index_at(0), log.bytes_before(7)) == (7, 7, 70)


def test_no_search_believes_a_damaged_segment(stored: Stored) -> None:
    segment = stored.log.segments[0]
    flip(stored.directory / segment.path, segment.file_bytes // 2)
    for search in (stored.log.index_from, stored.log.index_at, stored.log.bytes_before):
        with pytest.raises(LogUnreadable, match="does not match its checksum"):
            search(600)
    assert stored.log.index_from(3 * segment.end_index) == segment.end_index


def test_a_record_changes_its_place_and_not_its_index_when_its_chunk_becomes_a_segment(tmp_path: Path) -> None:
    stored = Stored(tmp_path)
    stored.append(10)
    chunk = stored.seal()
    stored.append(1)
    before = [stored.log.read(index) for index in range(11)]
    stored.to_segment(chunk)
    assert stored.log.sealed == []
    assert [stored.log.read(index) for index in range(11)] == before


def test_an_empty_tail_is_not_sealed(tmp_path: Path) -> None:
    assert Stored(tmp_path).log.seal() is None


def test_what_retention_dropped_is_not_adopted_again(tmp_path: Path) -> None:
    stored = Stored(tmp_path)
    stored.append(10)
    first = stored.to_segment(stored.seal())
    stored.append(10)
    chunk = stored.seal()
    stored.log.drop_below(10)
    assert stored.log.segments == []
    stored.log.adopt([first], chunk)
    assert stored.log.segments == []
    assert stored.log.index_of(0) is None


def test_a_log_that_does_not_end_where_the_checkpoint_says_is_refused(tmp_path: Path) -> None:
    stored = Stored(tmp_path)
    stored.append(10)
    segment = stored.to_segment(stored.seal())
    fresh = StoredLog(1, "orders", 0, [segment], PageCache(tmp_path, 8))
    with pytest.raises(LogUnreadable, match="counts 11 records"):
        fresh.start_at(11, 0)
    fresh.start_at(10, 10)
    assert fresh.read(9).value == b"9"


def test_what_is_given_up_leaves_nothing_in_the_cache(stored: Stored) -> None:
    for index in range(stored.count):
        stored.log.read(index)
    first, second = stored.log.segments
    stored.log.drop_below(first.end_index)
    assert {path for path, _ in stored.log.cache._pages} == {second.path}
    assert stored.log.cache._checked == {second.path}


def test_the_last_offset_of_a_segment_is_known_without_reading_it(tmp_path: Path) -> None:
    with Node(tmp_path) as node:
        node.create("t")
        for _ in range(5):
            node.produce("t", b"v")
        node.compact()
        log = node.store.log(1, 0)
        [segment] = log.segments
        (tmp_path / segment.path).unlink()
        assert log.offset_before(5) == 4
        node.produce("t", b"v")
        assert log.offset_before(6) == 5, "in memory"
        with pytest.raises(LogUnreadable):
            log.offset_before(3)
