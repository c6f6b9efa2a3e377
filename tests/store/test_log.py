from __future__ import annotations

from pathlib import Path

import pytest

from slipstream.record import LogUnreadable, Record
from slipstream.store import Disk, StoredLog
from slipstream.store.checkpoint import SegmentInfo
from slipstream.store.log import Chunk
from slipstream.store.segment import PAGE_ROWS, PageCache, write_segment


class Stored:
    """A log whose offsets have gaps, as those of a partition beside others do: record i has offset 3 i."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.log = StoredLog(1, "orders", 0, [], PageCache(directory, 8))
        self.count = 0

    def append(self, count: int) -> None:
        for _ in range(count):
            self.log.append(Record(3 * self.count, self.count, b"", b"%d" % self.count))
            self.count += 1

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
            start_bytes=0,
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
