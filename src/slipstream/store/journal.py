"""The journal: an append-only file written by one thread, one frame and one sync for all that came in meanwhile."""

from __future__ import annotations

import enum
import logging
import queue
import secrets
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeAlias, TypeVar

from slipstream.store.disk import Disk, NoRoom
from slipstream.store.frame import FILE_HEADER_SIZE, FileHeader, encode_frame
from slipstream.store.room import LOOK_S, Room

log = logging.getLogger(__name__)

ResultT = TypeVar("ResultT")

_ARRAY_32 = struct.Struct(">BI")
"""A MessagePack array header: a frame's payload is one array of changes."""


FRAME_BYTES = 16 << 20
"""A frame takes no more commits at this size, so that a long queue does not become one frame without end."""


RETRY_S = 0.5
"""How often a write is repeated for which there was no room, in seconds."""


class Durability(enum.StrEnum):
    """What an answer promises."""

    ALWAYS = "always"
    """It is on disk: it survives the loss of power."""
    INTERVAL = "interval"
    """The operating system has it: it survives the death of the process; synced every so often."""
    OFF = "off"
    """It will be written soon."""


Done: TypeAlias = Callable[[list[object]], object]
"""Called in the writer's thread with the tokens of what is now as safe as the durability promises."""
Failed: TypeAlias = Callable[[OSError], object]


class Writing(Protocol):
    """Hears, in the writer's thread, of what keeps it from writing for a while."""

    def stalled(self, error: NoRoom) -> object:
        """There is no room. The write is repeated until there is."""

    def resumed(self) -> object:
        """There is room again, and all that waited for it is written."""

    def room_changed(self) -> object:
        """The free space has become low, or is no longer."""


class _Commit:
    __slots__ = ("changes", "sync", "token")

    def __init__(self, changes: list[bytes], token: object, sync: bool) -> None:
        self.changes = changes
        self.token = token
        self.sync = sync


class _Rotate:
    __slots__ = ("after",)

    def __init__(self, after: Callable[[int], None]) -> None:
        self.after = after


class _Barrier:
    __slots__ = ("after",)

    def __init__(self, after: Callable[[], None]) -> None:
        self.after = after


class _Close:
    pass


_Item: TypeAlias = _Commit | _Rotate | _Barrier | _Close


class Journal:
    """Takes changes from one thread and writes them in another, so that many callers share one sync.

    After an error from write or sync nothing more is written: the kernel may have dropped what it could not store,
    and a retry would report success for data that is gone (ruling 12). A write for which there is no room is different.
    What it left in the file is cut off, and it is repeated until there is room.
    """

    def __init__(
        self,
        directory: Path,
        disk: Disk,
        durability: Durability,
        sync_interval_ms: int,
        done: Done,
        failed: Failed,
        writing: Writing | None = None,
        room: Room | None = None,
    ) -> None:
        self.directory = directory
        self.disk = disk
        self.durability = durability
        self.sync_interval_s = sync_interval_ms / 1000
        self.error: OSError | None = None
        self._done = done
        self._failed = failed
        self._writing = writing
        self._room = room
        self._is_stalled = False
        self._closing = threading.Event()
        self._queue: queue.SimpleQueue[_Item] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="slipstream-journal", daemon=True)
        self._fd = -1
        self._header = FileHeader(0, 0, 0)
        self._length = 0
        self._synced_length = 0
        self._unsynced = False
        self._synced_at = 0.0
        self.sync_count = 0
        self.sync_seconds = 0.0
        self.submitted_bytes = 0
        """Counted by who submits …"""
        self.written_bytes = 0
        """… and by the writer: the difference waits in the queue."""

    def create(self, sequence: int) -> None:
        """Starts a new file."""
        header = FileHeader(sequence, secrets.randbits(64), self._length)
        path = journal_path(self.directory, sequence)
        self._fd = self._with_room(lambda: self.disk.open_append(path, create=True))
        self._with_room(lambda: self.disk.write(self._fd, [header.encode()]), length=0)
        self.disk.sync(self._fd)
        self.disk.sync_directory(self.directory)
        self._header = header
        self._length = self._synced_length = FILE_HEADER_SIZE

    def reopen(self, header: FileHeader, length: int) -> None:
        """Goes on with the file that recovery found, which is `length` bytes long."""
        self._fd = self.disk.open_append(journal_path(self.directory, header.sequence), create=False)
        # What recovery read may be in the page cache only. From here on it is acted on, so it must be on disk.
        self.disk.sync(self._fd)
        self._header = header
        self._length = self._synced_length = length

    def start(self) -> None:
        self._thread.start()

    @property
    def sequence(self) -> int:
        return self._header.sequence

    def submit(self, changes: list[bytes], token: object, *, sync: bool) -> None:
        """Appends `changes` as part of one commit; `token` comes back through `done`."""
        self.submitted_bytes += sum(map(len, changes))
        self._queue.put(_Commit(changes, token, sync))

    def rotate(self, after: Callable[[int], None]) -> None:
        """Closes the file behind everything submitted so far and starts the next; `after` gets its number."""
        self._queue.put(_Rotate(after))

    def barrier(self, after: Callable[[], None]) -> None:
        """Calls `after` in the writer's thread when all submitted so far is on disk, whatever the durability."""
        self._queue.put(_Barrier(after))

    def close(self) -> None:
        """Write what is left, sync and stop. What there is no room for is not waited for any more."""
        self._closing.set()
        if self._thread.is_alive():
            self._queue.put(_Close())
            self._thread.join()
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            self.disk.close(fd)

    def _run(self) -> None:
        held: _Item | None = None
        while True:
            self._look_at_room()
            item = held if held is not None else self._next()
            held = None
            if isinstance(item, _Commit):
                commits, held = self._gather(item)
                self._attempt(lambda commits=commits: self._write(commits))  # type: ignore[misc]
            elif isinstance(item, _Rotate):
                self._attempt(lambda item=item: self._rotate(item))  # type: ignore[misc]
            elif isinstance(item, _Barrier):
                self._attempt(lambda item=item: self._pass(item))  # type: ignore[misc]
            elif item is None:
                if self._may_sync_now:
                    self._attempt(self._sync)
            else:
                self._attempt(self._sync_all)
                return

    def _next(self) -> _Item | None:
        """Return the next item; None when it is time for an interval sync, or to look at the room again."""
        timeout = None if self._room is None else LOOK_S
        if self._unsynced and self.durability is Durability.INTERVAL:
            until_sync = max(0.0, self._synced_at + self.sync_interval_s - time.monotonic())
            timeout = until_sync if timeout is None else min(timeout, until_sync)
        try:
            return self._queue.get(timeout=timeout)
        except queue.Empty:
            return None

    def _look_at_room(self) -> None:
        if self._room is not None and self._room.look(time.monotonic()) and self._writing is not None:
            self._writing.room_changed()

    def _gather(self, first: _Commit) -> tuple[list[_Commit], _Item | None]:
        """Everything that is waiting now goes into one frame."""
        commits = [first]
        size = 0
        while size < FRAME_BYTES:
            size += sum(map(len, commits[-1].changes))
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                return commits, None
            if not isinstance(item, _Commit):
                return commits, item
            commits.append(item)
        return commits, None

    def _attempt(self, action: Callable[[], None]) -> None:
        if self.error is not None:
            return
        try:
            action()
        except Exception as error:  # noqa: BLE001 - a writer that dies without a word leaves every caller waiting
            self.error = error if isinstance(error, OSError) else OSError(f"{type(error).__name__}: {error}")
            log.critical("the journal cannot be written, the broker takes no more writes: %s", error)
            self._failed(self.error)

    def _write(self, commits: list[_Commit]) -> None:
        changes = [change for commit in commits for change in commit.changes]
        must_sync = any(commit.sync for commit in commits)
        if changes:  # or nothing of their own, only a wait for what came before them, which may not be synced yet
            payload = _ARRAY_32.pack(0xDD, len(changes)) + b"".join(changes)
            self._append([encode_frame(self._header.seed, payload, self._synced_length), payload], sync=must_sync)
        if must_sync:
            self._sync_all()
        elif self._may_sync_now:
            self._sync()
        self.written_bytes += sum(map(len, changes))
        self._done([commit.token for commit in commits])

    @property
    def _may_sync_now(self) -> bool:
        """The interval since the last sync is over."""
        return self.durability is Durability.INTERVAL and time.monotonic() >= self._synced_at + self.sync_interval_s

    def _append(self, frame: list[bytes], *, sync: bool) -> None:
        """Append a frame; sync it in the same call if all before it is synced.

        A later frame on disk without an earlier one helps nobody.
        """
        if sync and not self._unsynced:
            started = time.monotonic()
            self._with_room(lambda: self.disk.write_synced(self._fd, frame, self._length), length=self._length)
            self._note_sync(started)
        else:
            self._with_room(lambda: self.disk.write(self._fd, frame), length=self._length)
            self._unsynced = True
        self._length += sum(map(len, frame))
        if not self._unsynced:
            self._synced_length = self._length

    def _with_room(self, write: Callable[[], ResultT], length: int | None = None) -> ResultT:
        """Repeat a write until there is room for it.

        The file is cut back to `length` before each repetition: what a write that failed has left there would be damage
        in the middle of the journal. If it cannot be, nothing is known of the file's end, and the error goes on.
        """
        while True:
            try:
                result = write()
            except NoRoom as error:
                if length is not None:
                    self.disk.cut(self._fd, length)
                if self._closing.is_set() or self._writing is None or not self._thread.is_alive():
                    raise
                if not self._is_stalled:
                    self._is_stalled = True
                    log.critical("no room for the journal: %s; it is written when there is room again", error)
                    self._writing.stalled(error)
                self._closing.wait(RETRY_S)
                self._look_at_room()
            else:
                if self._is_stalled:
                    self._is_stalled = False
                    log.info("there is room for the journal again")
                    assert self._writing is not None
                    self._writing.resumed()
                return result

    def _sync(self) -> None:
        if self.durability is not Durability.OFF:
            self._sync_all()

    def _sync_all(self) -> None:
        if self._unsynced:
            started = time.monotonic()
            self.disk.sync(self._fd)
            self._note_sync(started)
            self._unsynced = False
            self._synced_length = self._length

    def _note_sync(self, started: float) -> None:
        self._synced_at = time.monotonic()
        self.sync_seconds += self._synced_at - started
        self.sync_count += 1

    def _rotate(self, item: _Rotate) -> None:
        # Whatever the durability: the checkpoint that follows must not be ahead of the journal it builds on.
        self._sync_all()
        # The number is free for others from here on: it must not be closed again if `create` fails.
        fd, self._fd = self._fd, -1
        self.disk.close(fd)
        self.create(self.sequence + 1)
        item.after(self.sequence)

    def _pass(self, item: _Barrier) -> None:
        self._sync_all()
        item.after()


def count_changes(payload: bytes) -> int:
    """How many changes a frame's payload holds."""
    return int(_ARRAY_32.unpack_from(payload)[1])


def journal_path(directory: Path, sequence: int) -> Path:
    return directory / f"journal-{sequence:012d}"


def journal_numbers(directory: Path) -> list[int]:
    """The journal files there are, ascending."""
    names = (path.name.removeprefix("journal-") for path in directory.glob("journal-*"))
    return sorted(int(name) for name in names if name.isdigit())
