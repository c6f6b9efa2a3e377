"""What a part says: a file that keeps it, set aside by size, and the last lines at hand."""

from __future__ import annotations

import collections
from pathlib import Path

LAST_LINES = 20
LINE_MAX = 2_000
"""Characters of a line that are at hand; the file has all of it."""


class Said:
    """One part's. Lines are appended to what an earlier start has left."""

    def __init__(self, path: Path, *, max_bytes: int, files: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._max_bytes = max_bytes
        self._files = files
        self._file = path.open("ab", buffering=0)
        self._size = self._file.tell()
        self.last: collections.deque[str] = collections.deque(maxlen=LAST_LINES)

    def add(self, line: bytes) -> str:
        """Returns it as text."""
        try:
            self._keep(line + b"\n")
        except OSError as error:
            # The part goes on, whose pipe would be full otherwise, and whoever looks at it sees why the file does not.
            self.last.append(f"(not in {self._path}: {error.strerror})")
        text = line.decode(errors="replace").rstrip("\r")
        self.last.append(text[:LINE_MAX])
        return text

    def close(self) -> None:
        self._file.close()

    def _keep(self, line: bytes) -> None:
        if self._file.closed:  # an earlier one could not be set aside
            self._file = self._path.open("ab", buffering=0)
        if self._size and self._size + len(line) > self._max_bytes:
            self._set_aside()
        self._size += self._file.write(line) or 0

    def _set_aside(self) -> None:
        """`jobs.log` becomes `jobs.log.1`, and that `jobs.log.2`; the oldest goes."""
        self._file.close()
        for number in range(self._files, 0, -1):
            older = self._path if number == 1 else self._numbered(number - 1)
            if older.exists():
                older.replace(self._numbered(number))
        self._file = self._path.open("wb", buffering=0)
        self._size = 0

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")
