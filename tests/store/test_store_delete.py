"""Deleting a topic: its files go, nothing else does, and a crash at any point leaves a directory that starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from slipstream.engine.salvage import SalvagedState
from slipstream.store import Durability, SliceGone, StoredLog
from slipstream.store.checkpoint import SegmentInfo, checkpoint_numbers, checkpoint_path, read_checkpoint
from slipstream.store.doctor import Doctor, Severity
from tests.store.failing_disk import FailingDisk
from tests.store.node import LONG_MS, Answer, Node, content, flip, image


def say_deleted(node: Node, name: str) -> None:
    """In the journal, and the store has yet to be told."""
    node.engine.run(Answer(), lambda broker, _: broker.delete_topic(name))
    node.engine._flush(everything=True)


def fill(node: Node, topic: str, count: int = 10) -> None:
    for number in range(count):
        node.produce(topic, b"%s %d" % (topic.encode(), number), b"k%d" % number)


def two_topics(node: Node) -> None:
    """Both in two segments, merged ones besides, and in the journal; `gone` is read by a group."""
    node.create("gone", partitions=2)
    node.create("stays")
    for _ in range(2):
        fill(node, "gone")
        fill(node, "stays")
        node.compact()
    fill(node, "gone")
    fill(node, "stays")
    node.take("gone", 5)


def topics_on_disk(directory: Path) -> set[str]:
    return {path.name for path in (directory / "segments").iterdir()}


def test_a_deleted_topic_leaves_neither_files_nor_directories(tmp_path: Path) -> None:
    with Node(tmp_path) as node:
        two_topics(node)
        expected = node.values("stays")
        assert topics_on_disk(tmp_path) == {"1-gone", "2-stays"}
        node.delete("gone")
        node.until(lambda: topics_on_disk(tmp_path) == {"2-stays"})
        for _ in range(3):
            node.compact()
        assert topics_on_disk(tmp_path) == {"2-stays"}
        assert node.values("stays") == expected
    with Node(tmp_path) as node:
        assert node.values("stays") == expected
        assert list(node.engine.broker.state.topics) == ["stays"]


def test_a_topic_of_the_same_name_starts_from_nothing(tmp_path: Path) -> None:
    with Node(tmp_path) as node:
        node.create("first")
        node.create("orders")
        fill(node, "orders")
        node.compact()
        node.delete("orders")
        node.create("orders")
        node.produce("orders", b"new")
        node.compact()
        node.until(lambda: topics_on_disk(tmp_path) == {"3-orders"})
        assert node.values("orders") == [[b"new"]]
    with Node(tmp_path) as node:
        assert node.values("orders") == [[b"new"]]


def test_a_compaction_under_way_does_not_bring_a_topic_back(tmp_path: Path) -> None:
    with Node(tmp_path) as node:
        two_topics(node)
        logs = [node.store.log(1, 0), node.store.log(1, 1)]
        node.engine._flush(everything=True)
        node.engine._rotate()
        assert any(log.sealed for log in logs)
        say_deleted(node, "gone")
        node.store.delete_topic(1)  # now, not when the loop has turned and the compaction may be through
        node.until(lambda: topics_on_disk(tmp_path) == {"2-stays"} and not any(log.sealed for log in logs))
        assert [log.segments for log in logs] == [[], []]
        node.compact()
        assert {segment.topic_id for segment in newest(tmp_path)} == {2}
        assert sum(map(len, node.values("stays"))) == 30


def newest(directory: Path) -> list[SegmentInfo]:
    return read_checkpoint(checkpoint_path(directory, checkpoint_numbers(directory)[-1])).segments


def test_a_snapshot_without_the_topic_and_a_list_with_its_segments_start(tmp_path: Path) -> None:
    """The journal is rotated between the change and the moment it is known to be safe; then a crash."""
    with Node(tmp_path / "data") as node:
        two_topics(node)
        say_deleted(node, "gone")
        node.compact()
        copy = image(node, tmp_path / "crashed")
        expected = node.values("stays")
    assert {segment.topic_id for segment in newest(copy)} == {1, 2}
    with Node(copy) as node:
        assert node.values("stays") == expected
        node.until(lambda: topics_on_disk(copy) == {"2-stays"})
        node.compact()
        assert {segment.topic_id for segment in newest(copy)} == {2}


@pytest.mark.parametrize("left", range(6))
def test_a_crash_while_files_are_removed_leaves_a_directory_that_starts(tmp_path: Path, left: int) -> None:
    """The checkpoints name them all; `left` are there, and no start needs the others."""
    with Node(tmp_path / "data") as node:
        two_topics(node)
        node.compact()
        fill(node, "gone")
        say_deleted(node, "gone")
        node.produce("stays", b"last")
        copy = image(node, tmp_path / "crashed")
        expected = node.values("stays")
    files = sorted(name for name in content(copy) if name.startswith("segments/1-gone"))
    assert len(files) == 4
    for name in files[left:]:
        (copy / name).unlink()
    if left == 5:
        (copy / files[0]).with_name("0000000000000000-99.arrow.tmp").write_bytes(b"cut short")
    with Doctor(copy, SalvagedState) as doctor:
        assert doctor.examine().findings == []
    for _ in range(2):
        with Node(copy) as node:
            assert node.values("stays") == expected
            node.until(lambda: topics_on_disk(copy) == {"2-stays"})
    with Node(copy) as node:
        node.compact()
        node.compact()
        assert node.values("stays") == expected


def test_the_doctor_repairs_a_directory_without_looking_for_a_deleted_topic(tmp_path: Path) -> None:
    with Node(tmp_path) as node:
        two_topics(node)
        node.compact()
        expected = node.values("stays")
        node.delete("gone")
        node.until(lambda: topics_on_disk(tmp_path) == {"2-stays"})
    flip(checkpoint_path(tmp_path, checkpoint_numbers(tmp_path)[-1]), 40)
    with Doctor(tmp_path, SalvagedState) as doctor:
        diagnosis, _ = doctor.repair()
        assert diagnosis.losses == []
        assert [finding.severity for finding in diagnosis.findings] == [Severity.DAMAGE]
        assert doctor.examine().findings == []
    assert {segment.topic_id for segment in newest(tmp_path)} == {2}
    with Node(tmp_path) as node:
        assert node.values("stays") == expected


@pytest.mark.parametrize("durability", list(Durability))
def test_files_go_only_when_the_journal_that_says_so_is_synced(tmp_path: Path, durability: Durability) -> None:
    disk = FailingDisk()
    with Node(tmp_path, disk, durability=durability, sync_interval_ms=LONG_MS) as node:
        node.create("gone")
        fill(node, "gone")
        node.compact()
        disk.calls.clear()
        node.delete("gone")
        node.until(lambda: topics_on_disk(tmp_path) == set())
        first_removal = next(n for n, call in enumerate(disk.calls) if call.startswith("remove"))
        last_write = max(n for n, call in enumerate(disk.calls[:first_removal]) if call == "write")
        assert "sync" in disk.calls[last_write:first_removal]


def test_a_slice_of_a_deleted_topic_is_gone(tmp_path: Path) -> None:
    with Node(tmp_path) as node:
        node.create("gone")
        fill(node, "gone")
        node.compact()
        log: StoredLog = node.store.log(1, 0)
        before = log.slice(0, 10, 1 << 20)
        node.delete("gone")
        node.until(lambda: topics_on_disk(tmp_path) == set())
        with pytest.raises(SliceGone):
            before.records()
        with pytest.raises(KeyError):
            node.store.log(1, 0)


def test_retention_says_which_offset_may_be_the_first_that_is_left(tmp_path: Path) -> None:
    with Node(tmp_path) as node:
        node.create("orders", partitions=2)
        fill(node, "orders")
        node.compact()
        last = [node.store.log(1, number).segments[-1].last_offset for number in range(2)]
        for number in range(2):
            end = node.store.expired(1, number, before_ms=None, up_to_bytes=1 << 20, below_index=100)
            assert end is not None
            assert end[2] == last[number] + 1
