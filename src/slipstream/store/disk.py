"""The few things the store asks of a file system, in one place so that a test can make them fail."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Sequence
from pathlib import Path

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class NoRoom(OSError):
    """A write that the file system refused because there is no room for it.

    Nothing has been lost by it: what was written before is as safe as it was, and what may have been written of this is
    at the end of the file. That is not known of a sync that fails, whatever its error.
    """


def is_no_room(error: OSError) -> bool:
    """Return whether an error says that there is no room."""
    return error.errno in _NO_ROOM


class Disk:
    """Any file system."""

    def __init__(self) -> None:
        self._known: set[Path] = set()
        """Directories whose way down from the root was synced by this process."""

    def open_append(self, path: Path, *, create: bool) -> int:
        """Raises NoRoom where there is none for a new file."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if create else 0)
        try:
            return os.open(path, flags, 0o644)
        except OSError as error:
            if is_no_room(error):
                raise NoRoom(error.errno, error.strerror) from error
            raise

    def write(self, fd: int, parts: Sequence[bytes]) -> None:
        """Raises NoRoom where there is none; some of it may be in the file then."""
        data = b"".join(parts)
        try:
            written = os.write(fd, data)
            while written < len(data):
                written += os.write(fd, memoryview(data)[written:])
        except OSError as error:
            if is_no_room(error):
                raise NoRoom(error.errno, error.strerror) from error
            raise

    def cut(self, fd: int, length: int) -> None:
        """Cut an open file to `length` bytes, on the disk too, and make sure that it has so many."""
        os.ftruncate(fd, length)
        os.fsync(fd)
        found = os.fstat(fd).st_size
        if found != length:
            raise OSError(errno.EIO, f"the file was cut to {length} bytes and has {found}")

    def space(self, path: Path) -> tuple[int, int]:
        """Return how many bytes of the volume are free for this process, and how many there are."""
        found = os.statvfs(path)
        return found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize

    def write_synced(self, fd: int, parts: Sequence[bytes], position: int) -> None:
        """Write at the end of the file, which is at `position`, and sync; all before it must be synced already.

        Raises NoRoom where there is none, and any other error also where it may be that of the sync.
        """
        self.write(fd, parts)
        self.sync(fd)

    def sync(self, fd: int) -> None:
        os.fdatasync(fd)

    def close(self, fd: int) -> None:
        os.close(fd)

    def replace_file(self, path: Path, parts: Sequence[bytes]) -> None:
        """Puts a whole file in place, so that after a crash there is either none of it or all of it."""
        temporary = path.with_name(path.name + ".tmp")
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            self.write(fd, parts)
            self.sync(fd)
        except OSError:
            temporary.unlink(missing_ok=True)  # it may be what fills the disk
            raise
        finally:
            os.close(fd)
        temporary.replace(path)
        self.sync_directory(path.parent)

    def truncate(self, path: Path, length: int) -> None:
        with path.open("r+b") as file:
            file.truncate(length)
            os.fsync(file.fileno())

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def remove_tree(self, path: Path) -> None:
        """Removes a directory with all that is in it, or what is left of that."""
        for inner in sorted(path.rglob("*"), reverse=True):
            if inner.is_dir():
                self._remove_directory(inner)
            else:
                self.remove(inner)
        self._remove_directory(path)

    def _remove_directory(self, path: Path) -> None:
        self._known.discard(path)
        with contextlib.suppress(FileNotFoundError):
            path.rmdir()

    def make_directory(self, path: Path) -> None:
        """Makes it and what leads to it, each one's entry synced: a lost directory takes its synced files with it."""
        if path in self._known:
            return
        made = []
        while not path.is_dir():
            made.append(path)
            path = path.parent
        # What is there already may be the work of a process that died before its sync. Above the data directory it is
        # not ours, and perhaps not ours to read.
        with contextlib.suppress(PermissionError):
            self.sync_directory(path.parent)
        for directory in reversed(made):
            directory.mkdir(exist_ok=True)
            self.sync_directory(directory.parent)
        self._known.update(made or [path])

    def sync_directory(self, path: Path) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


class LinuxDisk(Disk):
    """Writes and syncs in one call: between two, the thread has to get hold of the interpreter again, and under load
    that takes longer than the sync."""

    def write_synced(self, fd: int, parts: Sequence[bytes], position: int) -> None:
        try:
            written = os.pwritev(fd, parts, position, os.RWF_DSYNC)
        except OSError as error:
            # The error may be that of the sync, which has something to sync only if the file has grown.
            if is_no_room(error) and os.fstat(fd).st_size == position:
                raise NoRoom(error.errno, error.strerror) from error
            raise
        if written < sum(map(len, parts)):
            super().write_synced(fd, [b"".join(parts)[written:]], position + written)


def system_disk() -> Disk:
    return LinuxDisk() if hasattr(os, "RWF_DSYNC") else Disk()
