from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

from slipstream.broker import DiskLow, Unavailable
from slipstream.store import builder as module
from slipstream.store import compactor
from slipstream.store.checkpoint import checkpoint_numbers
from slipstream.store.journal import journal_numbers
from tests.store.failing_disk import FailingDisk
from tests.store.node import Node, flip, image


def segments(directory: Path) -> list[str]:
    return sorted(path.name for path in (directory / "segments").glob("*/*/*"))


def fill(node: Node, count: int = 10) -> None:
    for number in range(count):
        node.produce("orders", b"%d" % number)


def test_a_compaction_leaves_segments_two_checkpoints_and_their_journal(tmp_path: Path) -> None:
    with Node(tmp_path) as node:
        node.create("orders")
        for _ in range(4):
            fill(node)
            node.compact()
        assert checkpoint_numbers(tmp_path) == [4, 5]
        assert journal_numbers(tmp_path) == [4, 5]
        assert node.store.log(1, 0).tail.records == []
        assert len(node.values("orders")[0]) == 40


def test_small_segments_become_one_and_the_old_files_go_with_their_checkpoint(tmp_path: Path) -> None:
    with Node(tmp_path) as node:
        node.create("orders")
        fill(node)
        node.compact()
        fill(node)
        node.compact()
        assert segments(tmp_path) == ["0000000000000000-10.arrow", "0000000000000000-20.arrow"]
        node.compact()
        assert segments(tmp_path) == ["0000000000000000-20.arrow"]


def test_a_merged_segment_left_by_the_last_run_goes_with_its_checkpoint(tmp_path: Path) -> None:
    with Node(tmp_path) as node:
        node.create("orders")
        for _ in range(2):
            fill(node)
            node.compact()
    with Node(tmp_path) as node:
        assert len(segments(tmp_path)) == 2
        node.compact()
        assert segments(tmp_path) == ["0000000000000000-20.arrow"]


@pytest.mark.parametrize(("name", "limit"), [("BELOW_BYTES", 5), ("BELOW_COUNT", 10), ("SPAN_MS", -1)])
def test_a_segment_that_is_large_or_old_enough_is_not_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, limit: int
) -> None:
    monkeypatch.setattr(module, f"MERGE_{name}", limit)
    with Node(tmp_path) as node:
        node.create("orders")
        for _ in range(2):
            fill(node)
            node.compact()
        assert segments(tmp_path) == ["0000000000000000-10.arrow", "0000000000000010-10.arrow"]


def test_a_damaged_segment_is_never_merged_into_a_good_one(tmp_path: Path) -> None:
    with Node(tmp_path) as node:
        node.create("orders")
        fill(node)
        node.compact()
        path = next((tmp_path / "segments").glob("*/*/*"))
        flip(path, path.stat().st_size // 2)
        fill(node)
        node.compact()
        assert segments(tmp_path) == ["0000000000000000-10.arrow", "0000000000000010-10.arrow"]
        assert [node.store.log(1, 0).read(index).value for index in (10, 19)] == [b"0", b"9"]


class Photographer(FailingDisk):
    """Takes a picture of the directory before and after every step of a compaction."""

    def __init__(self, album: Path) -> None:
        super().__init__()
        self.album = album
        self.directory: Path | None = None
        self.pictures: list[tuple[str, Path]] = []

    def _check(self, operation: str, path: object = "") -> None:
        if self.directory is not None and operation not in {"write", "sync"}:
            target = self.album / str(len(self.pictures))
            shutil.copytree(self.directory, target)
            self.pictures.append((f"{operation} {path}", target))


def test_a_crash_between_any_two_steps_of_a_compaction_changes_nothing(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    disk = Photographer(tmp_path)
    with Node(directory, disk) as node:
        node.create("orders", partitions=2)
        for _ in range(3):
            fill(node)
            node.produce("orders", b"keyed", b"k1")
            node.compact()
        for delivery in node.take("orders", 33)[:7]:
            node.ack("orders", delivery)
        expected, values = node.state(), node.values("orders")
        disk.directory = directory
        node.compact()
        disk.directory = None
    assert len(disk.pictures) > 8
    for step, picture in disk.pictures:
        (picture / "checkpoint-000000000099.tmp").write_bytes(b"half")
        (picture / "segments/1-orders/0/0000000000000000-99.arrow.tmp").write_bytes(b"half")
        with Node(picture) as node:
            assert node.state() == expected, f"crash before {step}"
            assert node.values("orders") == values, f"crash before {step}"
        assert not list(picture.rglob("*.tmp"))


@pytest.mark.parametrize("operation", ["replace segment", "replace checkpoint", "remove"])
def test_an_error_during_compaction_stops_producers_and_loses_nothing(tmp_path: Path, operation: str) -> None:
    directory = tmp_path / "data"
    disk = FailingDisk()
    with Node(directory, disk) as node:
        node.create("orders")
        for _ in range(3):
            fill(node)
            node.compact()
        fill(node)
        delivery = node.take("orders", 1)[0]
        disk.fail(operation, errno.EIO)
        with pytest.raises(OSError, match="Input/output error"):
            node.compact()
        with pytest.raises(Unavailable, match=r"compaction failed.*Input/output error"):
            node.produce("orders", b"more")
        node.ack("orders", delivery)
        expected = node.state()
    with Node(directory) as node:
        assert node.state() == expected
        assert len(node.values("orders")[0]) == 40
        node.compact()
        node.produce("orders", b"more")


@pytest.mark.parametrize("operation", ["replace segment", "replace checkpoint"])
def test_a_compaction_without_room_waits_for_it_while_acks_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    monkeypatch.setattr(compactor, "RETRY_S", 0.001)
    directory = tmp_path / "data"
    disk = FailingDisk()
    with Node(directory, disk) as node:
        node.create("orders")
        fill(node)
        node.compact()
        fill(node)
        delivery = node.take("orders", 1)[0]
        disk.fail(operation, errno.ENOSPC)
        node.engine._flush()
        node.engine._rotate()
        node.until(lambda: node.store.compactor.stalled is not None)
        with pytest.raises(DiskLow, match=r"a compaction waits for room.*No space left"):
            node.produce("orders", b"more")
        node.ack("orders", delivery)
        assert node.engine.trouble is None
        disk.mend()
        node.until(lambda: node.store.compactor.backlog == 0)
        node.produce("orders", b"more")
        expected, values = node.state(), node.values("orders")
    with Node(directory) as node:
        assert (node.state(), node.values("orders")) == (expected, values)


def test_retention_makes_room_for_a_compaction_that_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compactor, "RETRY_S", 0.001)
    directory = tmp_path / "data"
    disk = FailingDisk()
    with Node(directory, disk) as node:
        node.create("old", retention_bytes=1)
        node.create("orders")
        node.produce("old", b"x" * 100)
        node.compact()
        (path,) = (directory / "segments").glob("1-old/0/*")
        node.produce("old", b"new")
        fill(node)
        disk.fail("replace segment", errno.ENOSPC)
        node.engine._flush()
        node.engine._rotate()
        node.until(lambda: node.store.compactor.stalled is not None)
        node.engine.trim(node.engine.broker.topic("old"), 0)
        node.engine._schedule_flush()
        node.until(lambda: not path.exists())
        disk.mend()
        node.until(lambda: node.store.compactor.backlog == 0)
        values = node.values("orders")
    with Node(directory) as node:
        assert (node.values("orders"), node.values("old")) == (values, [[b"new"]])


@pytest.mark.parametrize("operation", ["replace segment", "replace checkpoint"])
def test_deleting_a_topic_makes_room_for_a_compaction_that_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    """Also while a second compaction waits behind the first; retention goes on behind the deletion."""
    monkeypatch.setattr(compactor, "RETRY_S", 0.001)
    monkeypatch.setattr(module, "MERGE_BELOW_BYTES", 5)
    directory = tmp_path / "data"
    disk = FailingDisk()
    with Node(directory, disk) as node:

        def reject(offset: int) -> None:
            at = ("orders", "g", 0, offset, "o", "boom")
            node.perform(lambda broker, now_ms: broker.nack(now_ms, *at, retryable=False))

        node.create("old", retention_bytes=1)
        node.produce("old", b"x" * 100)
        node.create("orders")
        fill(node)
        node.take("orders", 10)
        reject(0)
        node.compact()
        (old,) = (directory / "segments").glob("1-old/0/*")
        (gone,) = (directory / "segments").glob("*-dlq.orders")
        node.produce("old", b"new")
        reject(1)
        disk.fail(operation, errno.ENOSPC)
        node.engine._rotate()
        node.until(lambda: node.store.compactor.stalled is not None)
        reject(2)
        node.engine._rotate()
        node.delete("dlq.orders")
        node.until(lambda: not gone.exists())
        node.engine.trim(node.engine.broker.topic("old"), 0)
        node.engine._schedule_flush()
        node.until(lambda: not old.exists())
        disk.mend()
        node.until(lambda: node.store.compactor.backlog == 0)
        assert not gone.exists(), "no compaction has brought it back"
        expected, values = node.state(), node.values("orders")
    with Node(directory) as node:
        assert (node.state(), node.values("orders"), node.values("old")) == (expected, values, [[b"new"]])
        node.compact()
        assert not gone.exists()


def test_a_stop_does_not_wait_for_room_for_a_compaction(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    disk = FailingDisk()
    with Node(directory, disk) as node:
        node.create("orders")
        fill(node)
        disk.fail("replace segment", errno.ENOSPC)
        node.engine._flush()
        node.engine._rotate()
        node.until(lambda: node.store.compactor.stalled is not None)
        values = node.values("orders")
    assert node.engine.trouble is None
    with Node(directory) as node:
        assert node.values("orders") == values


def test_a_compaction_that_follows_a_crash_takes_everything_with_it(tmp_path: Path) -> None:
    with Node(tmp_path / "data") as node:
        node.create("orders")
        fill(node)
        copy = image(node, tmp_path / "crashed")
    with Node(copy) as node:
        node.compact()
        node.compact()
        assert segments(copy) == ["0000000000000000-10.arrow"]
    with Node(copy) as node:
        assert len(node.values("orders")[0]) == 10
