from __future__ import annotations

import errno
import threading
import time
from pathlib import Path

import pytest

from slipstream.store import Durability
from slipstream.store import journal as journal_module
from slipstream.store.frame import FileHeader, Frame, scan_frames
from slipstream.store.journal import Journal, count_changes, journal_path
from tests.store.failing_disk import FailingDisk

CHANGE = b"\x01"


class Writer:
    """A journal on a fresh directory, and what it said."""

    def __init__(self, directory: Path, durability: Durability = Durability.ALWAYS, interval_ms: int = 60_000) -> None:
        self.directory = directory
        self.disk = FailingDisk()
        self.done: list[object] = []
        self.batches: list[list[object]] = []
        self.failures: list[OSError] = []
        self.heard: list[str] = []
        self.journal = Journal(directory, self.disk, durability, interval_ms, self._done, self.failures.append, self)
        self.journal.create(1)
        self.disk.calls.clear()

    def _done(self, tokens: list[object]) -> None:
        self.batches.append(tokens)
        self.done += tokens

    def stalled(self, error: OSError) -> None:
        self.heard.append("stalled")

    def resumed(self) -> None:
        self.heard.append("resumed")

    def room_changed(self) -> None:
        self.heard.append("room changed")

    def submit(self, *tokens: object, sync: bool = True) -> None:
        for token in tokens:
            self.journal.submit([CHANGE], token, sync=sync)

    def run(self) -> None:
        """Starts the thread on what was submitted, and ends it."""
        self.journal.start()
        self.journal.close()

    def pause(self) -> None:
        """Returns when all that was submitted so far has been handled."""
        passed = threading.Event()
        self.journal.barrier(passed.set)
        assert passed.wait(10)

    @property
    def syncs(self) -> int:
        return self.disk.calls.count("sync")

    def frames(self, number: int = 1) -> list[int]:
        """How many changes each frame of a file holds."""
        path = journal_path(self.directory, number)
        data = path.read_bytes()
        items = list(scan_frames(data, FileHeader.decode(path, data).seed))
        assert all(isinstance(item, Frame) for item in items)
        return [count_changes(item.payload) for item in items if isinstance(item, Frame)]


def test_a_commit_without_changes_waits_for_the_sync_of_what_came_before_it(tmp_path: Path) -> None:
    """A late ack is answered because of a change that nobody waited for: it must be on disk all the same."""
    writer = Writer(tmp_path)
    writer.journal.start()
    writer.submit("unsynced", sync=False)
    while "unsynced" not in writer.done:
        time.sleep(0.001)
    assert writer.syncs == 0
    writer.disk.fail("sync")
    writer.journal.submit([], "late ack", sync=True)
    writer.journal.close()
    assert writer.done == ["unsynced"], "answered for what may be lost"


def test_what_waits_shares_one_frame_and_one_sync(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.submit(*range(100))
    writer.run()
    assert writer.frames() == [100]
    assert writer.syncs == 1


def test_tokens_come_back_in_the_order_they_were_submitted(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.journal.start()
    writer.submit(*range(1000))
    writer.journal.close()
    assert writer.done == list(range(1000))
    assert len(writer.frames()) == len(writer.batches)


def test_a_token_without_changes_waits_for_those_before_it_and_writes_nothing(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.journal.submit([], "only waiting", sync=True)
    writer.run()
    assert writer.done == ["only waiting"]
    assert writer.frames() == []


def test_always_syncs_before_it_answers(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.submit("a")
    writer.run()
    assert writer.disk.calls == ["write", "sync"]


def test_what_nobody_waits_for_is_written_without_a_sync(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.journal.start()
    writer.submit("a", sync=False)
    while not writer.done:
        threading.Event().wait(0.001)
    assert writer.syncs == 0
    writer.journal.close()
    assert writer.syncs == 1, "a clean end syncs what is left"


def test_interval_answers_after_the_write_and_syncs_when_it_is_time(tmp_path: Path) -> None:
    writer = Writer(tmp_path, Durability.INTERVAL, 20)
    writer.journal.start()
    writer.submit("first")
    while writer.syncs < 1:
        threading.Event().wait(0.001)
    writer.submit("second")
    while writer.syncs < 2:
        threading.Event().wait(0.001)
    writer.journal.close()
    assert writer.done == ["first", "second"]


def test_interval_shares_a_sync_between_the_writes_of_its_time(tmp_path: Path) -> None:
    writer = Writer(tmp_path, Durability.INTERVAL, 60_000)
    writer.journal._synced_at = time.monotonic()
    writer.journal.start()
    for token in ("a", "b"):
        writer.submit(token, sync=False)
        while token not in writer.done:
            threading.Event().wait(0.001)
    assert writer.syncs == 0
    writer.journal.close()
    assert writer.syncs == 1


def test_off_does_not_sync_until_the_end(tmp_path: Path) -> None:
    writer = Writer(tmp_path, Durability.OFF)
    writer.journal.start()
    writer.submit("a", "b", sync=False)
    while len(writer.done) < 2:
        threading.Event().wait(0.001)
    assert writer.syncs == 0
    writer.journal.close()
    assert writer.syncs == 1


@pytest.mark.parametrize("durability", list(Durability))
def test_a_barrier_is_passed_when_all_before_it_is_on_disk(tmp_path: Path, durability: Durability) -> None:
    writer = Writer(tmp_path, durability)
    seen: list[list[str]] = []
    writer.submit("a", sync=False)
    writer.journal.barrier(lambda: seen.append(list(writer.disk.calls)))
    writer.run()
    assert seen == [["write", "sync"]]


@pytest.mark.parametrize("durability", list(Durability))
def test_rotation_syncs_the_old_file_before_it_starts_the_next(tmp_path: Path, durability: Durability) -> None:
    writer = Writer(tmp_path, durability)
    numbers: list[int] = []
    writer.submit("a", sync=False)
    writer.journal.rotate(numbers.append)
    writer.submit("b", sync=False)
    writer.run()
    calls = writer.disk.calls
    assert calls[:3] == ["write", "sync", "open journal-000000000002"]
    assert numbers == [2]
    assert (writer.frames(1), writer.frames(2)) == ([1], [1])
    second = FileHeader.decode(tmp_path, journal_path(tmp_path, 2).read_bytes())
    assert second.previous_length == journal_path(tmp_path, 1).stat().st_size


@pytest.mark.parametrize(("operation", "number"), [("write", errno.EIO), ("sync", errno.EIO), ("sync", errno.ENOSPC)])
def test_after_an_error_nothing_more_is_written_or_answered(tmp_path: Path, operation: str, number: int) -> None:
    writer = Writer(tmp_path)
    writer.journal.start()
    writer.submit("good")
    writer.pause()
    writer.disk.fail(operation, number)
    writer.submit("bad")
    while not writer.failures:
        threading.Event().wait(0.001)
    writer.disk.mend()
    size = journal_path(tmp_path, 1).stat().st_size
    writer.submit("after")
    writer.journal.rotate(lambda _: writer.done.append("rotated"))
    writer.journal.barrier(lambda: writer.done.append("passed"))
    writer.journal.close()
    assert writer.done == ["good"]
    assert [error.errno for error in writer.failures] == [number]
    assert journal_path(tmp_path, 1).stat().st_size == size
    assert not journal_path(tmp_path, 2).exists()


@pytest.mark.parametrize("operation", ["write", "half a write"])
@pytest.mark.parametrize("durability", list(Durability))
def test_a_write_without_room_is_cut_off_and_repeated_until_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: str, durability: Durability
) -> None:
    monkeypatch.setattr(journal_module, "RETRY_S", 0.001)
    writer = Writer(tmp_path, durability)
    writer.journal.start()
    writer.submit("before")
    writer.pause()
    writer.disk.fail(operation, errno.ENOSPC)
    writer.submit("waits")
    writer.submit("waits too", sync=False)
    while writer.disk.calls.count("cut") < 3:
        threading.Event().wait(0.001)
    assert (writer.done, writer.heard) == (["before"], ["stalled"])
    writer.disk.mend()
    writer.pause()
    writer.submit("after")
    writer.journal.rotate(lambda _: None)
    writer.submit("in the next file")
    writer.journal.close()
    assert writer.done == ["before", "waits", "waits too", "after", "in the next file"]
    assert (writer.heard, writer.failures) == (["stalled", "resumed"], [])
    assert sum(writer.frames(1)) == 4
    assert writer.frames(2) == [1]


@pytest.mark.parametrize("operation", ["open", "write", "half a write"])
def test_a_rotation_without_room_is_repeated_until_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    monkeypatch.setattr(journal_module, "RETRY_S", 0.001)
    writer = Writer(tmp_path)
    writer.journal.start()
    writer.submit("before")
    writer.pause()
    writer.disk.fail(operation, errno.ENOSPC)
    writer.journal.rotate(writer.done.append)
    while not writer.heard:
        threading.Event().wait(0.001)
    writer.disk.mend()
    writer.submit("after")
    writer.pause()
    writer.journal.close()
    assert writer.done == ["before", 2, "after"]
    assert writer.heard == ["stalled", "resumed"]
    assert writer.frames(2) == [1]


def test_a_file_that_cannot_be_cut_back_is_not_written_to_again(tmp_path: Path) -> None:
    """Its end is not known then."""
    writer = Writer(tmp_path)
    writer.journal.start()
    writer.disk.fail("half a write", errno.ENOSPC)
    writer.disk.fail("cut", errno.EIO)
    writer.submit("bad")
    while not writer.failures:
        threading.Event().wait(0.001)
    writer.disk.mend()
    writer.submit("after")
    writer.journal.close()
    assert (writer.done, writer.heard) == ([], [])


def test_a_stop_does_not_wait_for_room(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.journal.start()
    writer.submit("before")
    writer.pause()
    writer.disk.fail("half a write", errno.ENOSPC)
    writer.submit("bad")
    while not writer.heard:
        threading.Event().wait(0.001)
    writer.journal.close()
    assert writer.done == ["before"]
    assert [error.errno for error in writer.failures] == [errno.ENOSPC]
    assert writer.frames() == [1], "nothing is torn"


@pytest.mark.parametrize(
    ("operation", "number"), [("sync", errno.ENOSPC), ("open", errno.EIO), ("sync_directory", errno.ENOSPC)]
)
def test_a_rotation_that_fails_is_reported_and_no_file_is_closed_twice(
    tmp_path: Path, operation: str, number: int
) -> None:
    writer = Writer(tmp_path)
    writer.journal.start()
    writer.submit("good")
    writer.pause()
    writer.disk.fail(operation, number)
    if operation == "sync":
        writer.submit("unsynced", sync=False)
    writer.journal.rotate(lambda _: writer.done.append("rotated"))
    writer.journal.close()  # FailingDisk asserts that only open files are closed
    assert "rotated" not in writer.done
    assert len(writer.failures) == 1
    assert writer.disk.open_files == set()


def test_an_error_that_is_not_the_disks_is_reported_too(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.journal.submit(["not bytes"], "bad", sync=True)  # type: ignore[list-item]
    writer.run()
    assert [type(error) for error in writer.failures] == [OSError]


def test_a_reopened_file_is_synced_before_anything_else(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.run()
    disk = FailingDisk()
    journal = Journal(tmp_path, disk, Durability.ALWAYS, 100, lambda _: None, lambda _: None)
    path = journal_path(tmp_path, 1)
    journal.reopen(FileHeader.decode(path, path.read_bytes()), path.stat().st_size)
    assert disk.calls == ["open journal-000000000001", "sync"]
    journal.close()


def test_a_long_queue_becomes_several_frames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "FRAME_BYTES", 10 * len(CHANGE))
    writer = Writer(tmp_path)
    writer.submit(*range(100))
    writer.run()
    assert writer.done == list(range(100))
    assert writer.journal.submitted_bytes == writer.journal.written_bytes == 100 * len(CHANGE)
    assert writer.disk.calls.count("write") == 10
