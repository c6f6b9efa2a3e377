from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from slipstream.store import Damaged
from slipstream.store.checkpoint import checkpoint_numbers, checkpoint_path
from slipstream.store.frame import FILE_HEADER_SIZE, FRAME_HEADER_SIZE, FileHeader, encode_frame, scan_frames
from slipstream.store.journal import journal_path
from tests.store.node import Node, content, cut, flip, journals


def fill(directory: Path) -> None:
    """Topics, messages, acks and a group, all in the first journal file, the last commit a message."""
    with Node(directory) as node:
        node.create("orders", partitions=3)
        for number in range(6):
            node.produce("orders", b"%d" % number, b"user:%d" % number)
        for delivery in node.take("orders", 6)[:3]:
            node.ack("orders", delivery)
        node.produce("orders", b"last", b"user:1")


def frame_positions(path: Path) -> list[int]:
    data = path.read_bytes()
    return [frame.position for frame in scan_frames(data, FileHeader.decode(path, data).seed)]


def state_of(directory: Path) -> object:
    with Node(directory) as node:
        return node.state()


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("filled") / "data"
    fill(directory)
    return directory


@pytest.fixture(scope="module")
def compacted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two checkpoints, segments, a closed journal file behind the newest and an open one."""
    directory = tmp_path_factory.mktemp("compacted") / "data"
    with Node(directory) as node:
        node.create("orders", partitions=2)
        for round_ in range(3):
            for number in range(8):
                node.produce("orders", b"%d.%d" % (round_, number), b"k%d" % number)
            if round_ < 2:
                node.compact()
        for delivery in node.take("orders", 24)[:5]:
            node.ack("orders", delivery)
    return directory


def copy_of(directory: Path, tmp_path: Path, name: str = "copy") -> Path:
    return Path(shutil.copytree(directory, tmp_path / name))


def assert_refused(directory: Path, path: Path, position: int | None, reason: str) -> None:
    before = content(directory)
    with pytest.raises(Damaged, match=reason) as caught:
        Node(directory)
    assert caught.value.path == path
    assert position is None or caught.value.position == position
    assert content(directory) == before, "a refused start changed the directory"


def test_a_tail_torn_at_any_byte_of_the_last_frame_is_cut_off_and_kept(filled: Path, tmp_path: Path) -> None:
    (path,) = journals(filled)
    last = frame_positions(path)[-1]
    whole = path.read_bytes()
    exact = copy_of(filled, tmp_path, "exact")
    cut(journals(exact)[0], last)
    expected = state_of(exact)
    for length in range(last + 1, len(whole)):
        directory = copy_of(filled, tmp_path, f"at-{length}")
        cut(journals(directory)[0], length)
        with Node(directory) as node:
            assert node.state() == expected, f"cut to {length} bytes"
            assert [(tail.position, tail.length) for tail in node.engine.torn] == [(last, length - last)]
        assert (directory / f"{path.name}.torn-{last}").read_bytes() == whole[last:length]
        shutil.rmtree(directory)


def test_work_goes_on_behind_a_tail_that_was_cut_off(filled: Path, tmp_path: Path) -> None:
    directory = copy_of(filled, tmp_path)
    path = journals(directory)[0]
    cut(path, len(path.read_bytes()) - 1)
    with Node(directory) as node:
        assert node.produce("orders", b"again", b"user:1").offset == 6
    with Node(directory) as node:
        assert node.engine.torn == []
        assert b"again" in node.values("orders")[1]


@pytest.mark.parametrize("zeros", [1, 15, 16, 17, 4096, 70_000])
def test_a_tail_of_zeros_is_cut_off(filled: Path, tmp_path: Path, zeros: int) -> None:
    directory = copy_of(filled, tmp_path)
    path = journals(directory)[0]
    whole = path.read_bytes()
    path.write_bytes(whole + bytes(zeros))
    with Node(directory) as node:
        assert [(tail.position, tail.length) for tail in node.engine.torn] == [(len(whole), zeros)]
        assert sum(map(len, node.values("orders"))) == 7
    assert path.read_bytes() == whole


@pytest.mark.parametrize("part", [0, 4, 8, 12, FRAME_HEADER_SIZE, FRAME_HEADER_SIZE + 9])
def test_a_flip_in_the_middle_of_the_active_file_refuses_the_start(filled: Path, tmp_path: Path, part: int) -> None:
    """In turn: magic, length, checksum, version, payload."""
    directory = copy_of(filled, tmp_path)
    path = journals(directory)[0]
    position = frame_positions(path)[2]
    flip(path, position + part)
    assert_refused(directory, path, position, "it was on disk when")


@pytest.mark.parametrize("part", [0, 4, 8, 12, FRAME_HEADER_SIZE, FRAME_HEADER_SIZE + 9])
def test_a_flip_in_the_last_frame_of_the_active_file_is_a_torn_tail(filled: Path, tmp_path: Path, part: int) -> None:
    directory = copy_of(filled, tmp_path)
    path = journals(directory)[0]
    position = frame_positions(path)[-1]
    flip(path, position + part)
    with Node(directory) as node:
        assert [tail.position for tail in node.engine.torn] == [position]
        assert sum(map(len, node.values("orders"))) == 6


@pytest.fixture(scope="module")
def two_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Journal files 1 and 2 and no checkpoint: the compaction between them was lost in a crash."""
    directory = tmp_path_factory.mktemp("two") / "data"
    with Node(directory) as node:
        node.create("orders")
        for number in range(4):
            node.produce("orders", b"%d" % number)
        node.compact()
        node.produce("orders", b"4")
    checkpoint_path(directory, 2).unlink()
    shutil.rmtree(directory / "segments")
    return directory


@pytest.mark.parametrize("frame", [0, -1])
@pytest.mark.parametrize("part", [0, 4, 8, FRAME_HEADER_SIZE])
def test_a_flip_in_a_closed_file_refuses_the_start(two_files: Path, tmp_path: Path, frame: int, part: int) -> None:
    directory = copy_of(two_files, tmp_path)
    path = journals(directory)[0]
    position = frame_positions(path)[frame]
    flip(path, position + part)
    assert_refused(directory, path, position, "a later journal file exists")


def test_a_closed_file_cut_at_a_frame_boundary_refuses_the_start(two_files: Path, tmp_path: Path) -> None:
    directory = copy_of(two_files, tmp_path)
    path = journals(directory)[0]
    length, last = len(path.read_bytes()), frame_positions(path)[-1]
    cut(path, last)
    assert_refused(directory, path, last, f"it had {length} bytes when it was closed")


def test_a_bad_file_header_refuses_the_start(two_files: Path, tmp_path: Path) -> None:
    directory = copy_of(two_files, tmp_path)
    flip(journals(directory)[1], 22)
    assert_refused(directory, journals(directory)[1], 0, "does not match its checksum")


def test_a_file_under_another_files_name_refuses_the_start(two_files: Path, tmp_path: Path) -> None:
    directory = copy_of(two_files, tmp_path)
    shutil.copyfile(journals(directory)[0], journals(directory)[1])
    assert_refused(directory, journals(directory)[1], 0, "says it is journal 1")


@pytest.mark.parametrize("length", [0, 1, FILE_HEADER_SIZE - 1])
@pytest.mark.parametrize("zeros", [False, True])
def test_a_crash_while_a_file_was_being_started_loses_nothing(
    filled: Path, tmp_path: Path, length: int, zeros: bool
) -> None:
    directory = copy_of(filled, tmp_path)
    started = FileHeader(2, 3, journals(directory)[0].stat().st_size).encode()
    journal_path(directory, 2).write_bytes(bytes(FILE_HEADER_SIZE) if zeros else started[:length])
    with Node(directory) as node:
        assert [tail.path.name for tail in node.engine.torn] == ["journal-000000000002"]
        node.produce("orders", b"more")
    assert len(journals(directory)) == 1
    with Node(directory) as node:
        assert sum(map(len, node.values("orders"))) == 8


def test_a_crash_during_the_very_first_start_leaves_a_directory_that_starts(tmp_path: Path) -> None:
    journal_path(tmp_path, 1).write_bytes(b"SLIP")
    with Node(tmp_path) as node:
        node.create("orders")


def test_a_journal_file_that_a_checkpoint_names_cannot_be_unstarted(compacted: Path, tmp_path: Path) -> None:
    directory = copy_of(compacted, tmp_path)
    path = journals(directory)[-1]
    cut(path, 10)
    assert_refused(directory, path, 10, "cut short")


def test_a_missing_journal_file_refuses_the_start(two_files: Path, tmp_path: Path) -> None:
    first = copy_of(two_files, tmp_path)
    journal_path(first, 1).unlink()
    assert_refused(first, journal_path(first, 1), 0, "is missing, 2 follows; no checkpoint is there")
    middle = copy_of(two_files, tmp_path, "middle")
    journal_path(middle, 3).write_bytes(FileHeader(3, 5, journal_path(middle, 2).stat().st_size).encode())
    journal_path(middle, 2).unlink()
    assert_refused(middle, journal_path(middle, 2), 0, "is missing, 3 follows")


def test_all_journal_files_missing_refuses_the_start(compacted: Path, tmp_path: Path) -> None:
    directory = copy_of(compacted, tmp_path)
    for path in journals(directory):
        path.unlink()
    assert_refused(directory, journal_path(directory, 3), 0, "the journal file is missing")


def test_segments_without_checkpoint_and_journal_are_not_taken_for_leftovers(compacted: Path, tmp_path: Path) -> None:
    directory = copy_of(compacted, tmp_path)
    for path in [*journals(directory), *directory.glob("checkpoint-*")]:
        path.unlink()
    assert_refused(directory, directory / "segments", 0, "neither a checkpoint nor a journal")


def test_a_missing_newest_checkpoint_costs_nothing(compacted: Path, tmp_path: Path) -> None:
    expected = state_of(copy_of(compacted, tmp_path, "whole"))
    directory = copy_of(compacted, tmp_path)
    assert checkpoint_numbers(directory) == [2, 3]
    checkpoint_path(directory, 3).unlink()
    with Node(directory) as node:
        assert node.state() == expected
        assert sum(map(len, node.values("orders"))) == 24


def damage_by_truncation(path: Path) -> None:
    cut(path, path.stat().st_size - 1)


def damage_to_nothing(path: Path) -> None:
    cut(path, 0)


def damage_in_header(path: Path) -> None:
    flip(path, 3)


def damage_in_payload(path: Path) -> None:
    flip(path, path.stat().st_size // 2)


@pytest.mark.parametrize(
    "damage", [damage_by_truncation, damage_to_nothing, damage_in_header, damage_in_payload], ids=lambda f: f.__name__
)
def test_a_damaged_checkpoint_refuses_the_start(
    compacted: Path, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    directory = copy_of(compacted, tmp_path)
    path = checkpoint_path(directory, 3)
    damage(path)
    assert_refused(directory, path, None, "checkpoint")


@pytest.mark.parametrize("missing", [True, False])
def test_a_missing_or_short_segment_refuses_the_start(compacted: Path, tmp_path: Path, missing: bool) -> None:
    directory = copy_of(compacted, tmp_path)
    path = sorted((directory / "segments/1-orders/0").glob("*"))[-1]
    if missing:
        path.unlink()
    else:
        cut(path, path.stat().st_size - 1)
    assert_refused(directory, path, None, "messages of partition 0, offsets 0 to 1")


def test_a_flipped_segment_refuses_the_start_where_segments_are_verified(compacted: Path, tmp_path: Path) -> None:
    directory = copy_of(compacted, tmp_path)
    path = sorted((directory / "segments/1-orders/0").glob("*"))[-1]
    flip(path, path.stat().st_size // 2)
    assert_refused(directory, path, 0, "does not match its checksum")


def test_a_flipped_segment_stalls_its_readers_with_the_reason_and_nobody_else(compacted: Path, tmp_path: Path) -> None:
    directory = copy_of(compacted, tmp_path)
    path = sorted((directory / "segments/1-orders/0").glob("*"))[-1]
    flip(path, path.stat().st_size // 2)
    with Node(directory, verify_bytes=0) as node:
        healthy = node.engine.broker.topic("orders").partitions[1].count
        deliveries = node.take("orders", healthy, group="fresh")
        assert {delivery.partition for delivery in deliveries} == {1}
        progress = node.engine.broker.topic("orders").groups["fresh"].progress
        assert "does not match its checksum" in progress[0].unreadable
        assert path.name in progress[0].unreadable
        assert progress[1].unreadable == ""


def test_a_commit_that_nobody_understands_refuses_the_start_with_its_place(filled: Path, tmp_path: Path) -> None:
    directory = copy_of(filled, tmp_path)
    path = journals(directory)[0]
    data = path.read_bytes()
    payload = b"\xdd\x00\x00\x00\x01" + msgspec.msgpack.encode([99, "from the future"])
    path.write_bytes(data + encode_frame(FileHeader.decode(path, data).seed, payload, len(data)) + payload)
    assert_refused(directory, path, len(data), "cannot be applied")


def test_a_payload_that_looks_like_a_frame_does_not_fool_recovery(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    with Node(directory) as node:
        node.create("orders")
        (path,) = journals(directory)
        header = FileHeader.decode(path, path.read_bytes())
        forged = encode_frame(header.seed ^ 1, b"\xdd\0\0\0\0", 0) + b"\xdd\0\0\0\0"
        node.produce("orders", b"before")
        node.produce("orders", forged * 3)
    cut(path, path.stat().st_size - 3)
    with Node(directory) as node:
        assert len(node.engine.torn) == 1
        assert node.values("orders") == [[b"before"]]


def test_recovery_cut_short_after_the_torn_bytes_were_saved_starts_again(filled: Path, tmp_path: Path) -> None:
    directory = copy_of(filled, tmp_path)
    path = journals(directory)[0]
    last = frame_positions(path)[-1]
    cut(path, path.stat().st_size - 1)
    (directory / f"{path.name}.torn-{last}").write_bytes(b"half of it")
    with Node(directory) as node:
        assert len(node.engine.torn) == 1
    assert (directory / f"{path.name}.torn-{last}").read_bytes().startswith(b"SLFR")
