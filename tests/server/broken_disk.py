"""A disk that breaks under a real server: named as its router, this module is imported before the directory is opened.

The journal's writes fail with EIO as long as there is a file BROKEN beside it. Nothing else of the server is changed.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

from slipstream.router import RoutedMessage
from slipstream.store import disk


class BrokenDisk(disk.LinuxDisk):
    def write(self, fd: int, parts: Sequence[bytes]) -> None:
        _check(fd)
        super().write(fd, parts)

    def write_synced(self, fd: int, parts: Sequence[bytes], position: int) -> None:
        _check(fd)
        super().write_synced(fd, parts, position)


def _check(fd: int) -> None:
    if Path(f"/proc/self/fd/{fd}").readlink().with_name("BROKEN").exists():
        raise OSError(errno.EIO, os.strerror(errno.EIO))


disk.LinuxDisk = BrokenDisk  # type: ignore[misc]


def leave(topic: str, message: RoutedMessage) -> None:
    """Leave every message as it is."""
