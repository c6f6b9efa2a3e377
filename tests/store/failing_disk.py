"""A disk that fails when it is told to."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

from slipstream.store import Disk
from slipstream.store.disk import NoRoom, is_no_room


class FailingDisk(Disk):
    """`fail("sync", errno.EIO)`: from now on every sync fails; `mend` ends it.."""

    def __init__(self) -> None:
        super().__init__()
        self.failing: dict[str, int] = {}
        self.free_bytes: int | None = None
        """The free space, instead of what there really is."""
        self.calls: list[str] = []
        self.open_files: set[int] = set()

    def fail(self, operation: str, number: int = errno.EIO) -> None:
        self.failing[operation] = number

    def mend(self) -> None:
        self.failing.clear()

    def _check(self, operation: str, path: object = "") -> None:
        self.calls.append(f"{operation} {Path(str(path)).name}".strip())
        if operation in self.failing:
            error = OSError(self.failing[operation], os.strerror(self.failing[operation]))
            # The real one raises NoRoom where it has tried to write.
            raise (
                NoRoom(error.errno, error.strerror)
                if operation in {"open", "write", "half a write"} and is_no_room(error)
                else error
            )

    def open_append(self, path: Path, *, create: bool) -> int:
        self._check("open", path)
        fd = super().open_append(path, create=create)
        self.open_files.add(fd)
        return fd

    def close(self, fd: int) -> None:
        assert fd in self.open_files, "closed a file that is not the journal's, or no longer"
        self.open_files.remove(fd)
        super().close(fd)

    def write(self, fd: int, parts: Sequence[bytes]) -> None:
        if fd in self.open_files:
            if "half a write" in self.failing:
                data = b"".join(parts)
                super().write(fd, [data[: len(data) // 2]])
                self._check("half a write")
            self._check("write")
        super().write(fd, parts)

    def cut(self, fd: int, length: int) -> None:
        self._check("cut")
        super().cut(fd, length)

    def space(self, path: Path) -> tuple[int, int]:
        if self.free_bytes is None:
            return super().space(path)
        return self.free_bytes, 1 << 40

    def sync(self, fd: int) -> None:
        if fd in self.open_files:
            self._check("sync")
        super().sync(fd)

    def replace_file(self, path: Path, parts: Sequence[bytes]) -> None:
        self._check("replace", path)
        self._check("replace checkpoint" if path.name.startswith("checkpoint") else "replace segment")
        super().replace_file(path, parts)

    def remove(self, path: Path) -> None:
        self._check("remove", path)
        super().remove(path)

    def sync_directory(self, path: Path) -> None:
        self._check("sync_directory", path)
        super().sync_directory(path)
