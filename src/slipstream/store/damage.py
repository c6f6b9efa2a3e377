"""What can be wrong with a data directory, said so that a person can act on it."""

from __future__ import annotations

from pathlib import Path

import msgspec


class Damaged(Exception):
    """The directory holds something other than what was written; the broker does not start on it (ruling 12)."""

    def __init__(self, path: Path, position: int, reason: str) -> None:
        super().__init__(f"{path} is damaged at byte {position}: {reason}")
        self.path = path
        self.position = position
        self.reason = reason


class DirectoryInUse(Exception):
    """Another process has the directory open."""


class ForeignDirectory(Exception):
    """The directory holds files, and none of them are ours."""

    def __init__(self, directory: Path) -> None:
        super().__init__(f"{directory} is not a data directory: it holds other files; choose another, or an empty one")


class TornTail(msgspec.Struct, frozen=True):
    """The last commit was cut short by a crash. Nobody was told that it is safe, so it is cut off and reported."""

    path: Path
    position: int
    length: int
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: cut {self.length} bytes of an unfinished commit at byte {self.position} ({self.reason})"
