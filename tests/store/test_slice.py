from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from slipstream.record import LogUnreadable, Record
from slipstream.store import LogSlice, SliceGone, StoredLog, builder
from slipstream.store.segment import PAGE_ROWS, to_records
from tests.store.node import Answer, Node, flip

NO_LIMIT = 1 << 40


@pytest.fixture
def unmerged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builder, "MERGE_BELOW_BYTES", 0)


def fill(node: Node, count: int) -> None:
    answers: list[Answer] = []
    for number in range(count):
        answers.append(node.send("orders", b"v" * (number % 7), b"k" * (number % 3)))
    for answer in answers:
        node.settle(answer)


def everywhere(node: Node, **config: Any) -> StoredLog:
    """Two segments (the first with three pages), a sealed chunk and a tail."""
    node.create("orders", **config)
    for count in (2 * PAGE_ROWS + 10, 20):
        fill(node, count)
        node.compact()
    fill(node, 15)
    log = node.store.log(1, 0)
    assert log.seal() is not None
    fill(node, 5)
    assert len(log.segments) == 2
    return log


def all_records(node: Node) -> list[Record]:
    partition = node.engine.broker.topic("orders").partitions[0]
    return [partition.log.read(index) for index in range(partition.first_index, partition.count)]


def read_elsewhere(found: LogSlice) -> list[Record]:
    """Both ways, in another thread; they have to agree."""
    with ThreadPoolExecutor(1) as other:
        records = other.submit(found.records).result()
        batches = other.submit(lambda: list(found.batches())).result()
    assert [record for batch in batches for record in to_records(batch)] == records
    assert all(batch.num_rows and batch.schema.names == COLUMNS for batch in batches)
    return records


COLUMNS = ["offset", "timestamp_ms", "key", "value", "meta"]


@pytest.mark.usefixtures("unmerged")
def test_a_slice_is_the_range_wherever_its_records_lie(tmp_path: Path) -> None:
    with Node(tmp_path) as node:
        log = everywhere(node)
        expected = all_records(node)
        end = len(expected)
        from_end = [end - 25, end - 20, end - 19, end - 5, end - 1, end]
        edges = [0, 1, PAGE_ROWS, PAGE_ROWS + 1, 2 * PAGE_ROWS + 10, *from_end]
        for first in edges:
            for last in edges:
                assert read_elsewhere(log.slice(first, last, NO_LIMIT)) == expected[first:last], (first, last)


@pytest.mark.usefixtures("unmerged")
def test_a_slice_ends_with_the_record_that_reaches_the_limit(tmp_path: Path) -> None:
    with Node(tmp_path) as node:
        log = everywhere(node)
        expected = all_records(node)
        for first in (0, 3, PAGE_ROWS - 1, 2 * PAGE_ROWS, len(expected) - 30, len(expected) - 12, len(expected) - 1):
            for limit in (-1, 0, 1, 2, 8, 9, 100, 2_000, 4_000, 5_000):
                taken, used = [], 0
                for record in expected[first:]:
                    taken.append(record)
                    used += record.size
                    if used >= limit:
                        break
                assert read_elsewhere(log.slice(first, len(expected), limit)) == taken, (first, limit)


def test_an_empty_range_has_nothing(tmp_path: Path) -> None:
    with Node(tmp_path) as node:
        node.create("orders")
        log = node.store.log(1, 0)
        assert read_elsewhere(log.slice(0, 0, NO_LIMIT)) == []
        fill(node, 3)
        assert read_elsewhere(log.slice(3, 3, NO_LIMIT)) == []
        assert read_elsewhere(log.slice(2, 1, NO_LIMIT)) == []


def test_what_is_appended_or_compacted_later_changes_no_slice(tmp_path: Path) -> None:
    """The compactor empties the list a chunk's records were in."""
    with Node(tmp_path) as node:
        node.create("orders")
        fill(node, 40)
        expected = all_records(node)
        before = node.store.log(1, 0).slice(0, 40, NO_LIMIT)
        fill(node, 10)
        node.compact()
        node.trim("orders")  # which waits for the compactor to have emptied it
        assert read_elsewhere(before) == expected
        assert read_elsewhere(node.store.log(1, 0).slice(0, 40, NO_LIMIT)) == expected


def test_a_slice_whose_segment_was_merged_is_taken_again(tmp_path: Path) -> None:
    with Node(tmp_path) as node:
        node.create("orders")
        fill(node, 10)
        node.compact()
        log = node.store.log(1, 0)
        before = log.slice(0, 10, NO_LIMIT)
        fill(node, 10)
        node.compact()
        assert read_elsewhere(before) == all_records(node)[:10], "the older checkpoint still has the file"
        node.compact()
        with pytest.raises(SliceGone):
            before.records()
        with pytest.raises(SliceGone):
            list(before.batches())
        assert read_elsewhere(log.slice(0, 10, NO_LIMIT)) == all_records(node)[:10]


@pytest.mark.usefixtures("unmerged")
def test_a_slice_that_retention_removed_is_taken_again(tmp_path: Path) -> None:
    with Node(tmp_path) as node:
        log = everywhere(node, retention_bytes=100, retention_ms=0)
        log.tail.first_index -= len(log.sealed[0].records)
        log.tail.records[:0] = log.sealed.pop().records  # nobody compacts what only the test has sealed
        before = log.slice(0, log.tail.end_index, NO_LIMIT)
        open_already = before.batches()
        first = next(open_already)
        node.trim("orders")
        assert len(list(tmp_path.glob("segments/*/*/*"))) == 1
        with pytest.raises(SliceGone):
            before.records()
        assert (first.num_rows, next(open_already).num_rows) == (PAGE_ROWS, PAGE_ROWS), "an open file stays readable"
        assert read_elsewhere(log.slice(log.first_index, log.tail.end_index, NO_LIMIT)) == all_records(node)


@pytest.mark.usefixtures("unmerged")
@pytest.mark.parametrize("harm", ["flip", "cut", "remove"])
def test_a_damaged_segment_is_unreadable_and_its_neighbours_are_not(tmp_path: Path, harm: str) -> None:
    with Node(tmp_path) as node:
        log = everywhere(node)
        expected = all_records(node)
    with Node(tmp_path, verify_bytes=0) as node:
        log = node.store.log(1, 0)
        first, second = log.segments
        path = tmp_path / first.path
        if harm == "flip":
            flip(path, first.file_bytes // 2)
        elif harm == "cut":
            path.write_bytes(path.read_bytes()[:-100])
        else:
            path.unlink()
        found = log.slice(0, len(expected), NO_LIMIT)
        with pytest.raises(LogUnreadable):
            found.records()
        with pytest.raises(LogUnreadable):
            list(found.batches())
        assert log.cache._checked == set()
        assert read_elsewhere(log.slice(second.first_index, len(expected), NO_LIMIT)) == expected[second.first_index :]
        assert log.cache._checked == {second.path}, "checked once is enough"


def test_a_slice_can_be_written_as_an_arrow_stream(tmp_path: Path) -> None:
    """Rows cut out of a page take no more room than they need."""
    with Node(tmp_path) as node:
        node.create("orders")
        for number in range(100):
            node.produce("orders", bytes([number]) * 1_000)
        node.compact()
        [batch] = node.store.log(1, 0).slice(50, 51, NO_LIMIT).batches()
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        data = sink.getvalue()
        assert data.size < 4_000
        [record] = to_records(pa.ipc.open_stream(data).read_all().to_batches()[0])
        assert record.value == bytes([50]) * 1_000
