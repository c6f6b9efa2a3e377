from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from slipstream.record import LogUnreadable, Record
from slipstream.store import Damaged, Disk
from slipstream.store.checkpoint import SegmentInfo
from slipstream.store.segment import PAGE_BYTES, PAGE_ROWS, PageCache, check_segment, read_segment, write_segment
from tests.store.node import cut, flip


def records(count: int, size: int = 3) -> list[Record]:
    return [Record(2 * n, 1000 + n, b"k%d" % n, b"v" * size, b"m") for n in range(count)]


def written(directory: Path, content: list[Record], first_index: int = 0) -> SegmentInfo:
    return write_segment(
        directory,
        Disk(),
        topic_id=1,
        topic="orders",
        partition=0,
        first_index=first_index,
        start_bytes=7,
        records=content,
    )


def test_a_segment_reads_back_as_it_was_written(tmp_path: Path) -> None:
    content = records(PAGE_ROWS * 2 + 5)
    info = written(tmp_path, content, 100)
    check_segment(tmp_path, info)
    assert read_segment(tmp_path, info) == content
    assert (info.first_index, info.end_index) == (100, 100 + len(content))
    assert (info.first_offset, info.last_offset) == (0, content[-1].offset)
    assert info.last_timestamp_ms == content[-1].timestamp_ms
    assert info.pages == [0, PAGE_ROWS, 2 * PAGE_ROWS]


def test_large_records_start_pages_of_their_own(tmp_path: Path) -> None:
    assert written(tmp_path, records(4, PAGE_BYTES // 2)).pages == [0, 1, 2, 3]


def test_any_arrow_reader_opens_a_segment(tmp_path: Path) -> None:
    info = written(tmp_path, records(3))
    with pa.memory_map(str(tmp_path / info.path)) as source:
        table = pa.ipc.open_file(source).read_all()
    assert table.column_names == ["offset", "timestamp_ms", "key", "value", "meta"]
    assert table["offset"].to_pylist() == [0, 2, 4]


def test_any_flip_is_found(tmp_path: Path) -> None:
    info = written(tmp_path, records(3))
    path = tmp_path / info.path
    for position in range(0, info.file_bytes, 7):
        flip(path, position, 5)
        with pytest.raises(Damaged, match="3 messages of partition 0, offsets 0 to 4"):
            check_segment(tmp_path, info)
        flip(path, position, 5)
    check_segment(tmp_path, info)


def test_a_missing_or_short_segment_is_found_with_what_it_held(tmp_path: Path) -> None:
    info = written(tmp_path, records(3))
    cut(tmp_path / info.path, info.file_bytes - 1)
    with pytest.raises(Damaged, match=f"should have {info.file_bytes} bytes"):
        check_segment(tmp_path, info)
    (tmp_path / info.path).unlink()
    with pytest.raises(Damaged, match="missing; it holds 3 messages"):
        check_segment(tmp_path, info)


def test_a_page_cache_holds_no_more_than_it_may_and_keeps_what_was_used_last(tmp_path: Path) -> None:
    info = written(tmp_path, records(PAGE_ROWS * 4))
    cache = PageCache(tmp_path, 2)
    cache.page(info, 0)
    cache.page(info, 1)
    first = cache.page(info, 0)
    cache.page(info, 2)
    assert len(cache._pages) == 2
    assert cache.page(info, 0) is first
    assert [cache.read(None, info, index).offset for index in (0, 511, 512, 2047)] == [0, 1022, 1024, 4094]
    assert len(cache._pages) == 2


def test_damage_is_found_on_the_first_read(tmp_path: Path) -> None:
    info = written(tmp_path, records(3))
    flip(tmp_path / info.path, info.file_bytes // 2)
    with pytest.raises(LogUnreadable, match="does not match its checksum"):
        PageCache(tmp_path, 2).read(None, info, 0)
