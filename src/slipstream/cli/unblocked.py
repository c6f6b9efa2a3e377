"""A file to print to that never makes its writer wait, for who has others to look after."""

from __future__ import annotations

import contextlib
import io
import os
import select
import threading
from collections.abc import Iterator
from typing import TextIO

ROOM = 1 << 20
"""Bytes that wait for a slow reader."""
PIECE = 1 << 16
LAST_WORDS_S = 2.0
"""How long a reader may take at the end for what still waits."""


@contextlib.contextmanager
def unblocked(file: TextIO, room: int = ROOM) -> Iterator[UnblockedText]:
    """What is written here arrives in `file`, as far as somebody reads it; the rest goes nowhere, as does all of it
    once `file` is broken. No character is refused, whatever `file` can encode."""
    pipe = UnblockedPipe(file.fileno(), room)
    try:
        yield UnblockedText(pipe, file.encoding)
    finally:
        pipe.end(LAST_WORDS_S)


class UnblockedText(io.TextIOWrapper):
    """As text."""

    def __init__(self, pipe: UnblockedPipe, encoding: str) -> None:
        super().__init__(pipe, encoding, errors="backslashreplace", write_through=True)
        self._pipe = pipe

    @property
    def is_behind(self) -> bool:
        """Nothing that is written now arrives: somebody has stopped reading, and has not caught up yet."""
        return self._pipe.is_behind


class UnblockedPipe(io.RawIOBase):
    """A thread writes. It holds nothing while it does, so one that nobody reads from keeps nobody from ending."""

    def __init__(self, fd: int, room: int) -> None:
        super().__init__()
        self._fd = fd
        self.name = str(fd)
        self._room = room
        self._waiting = bytearray()
        self._news = threading.Condition()
        self._is_ending = False
        self._is_broken = False
        self.is_behind = False
        self._thread = threading.Thread(target=self._write_on, name="slipstream-print", daemon=True)
        self._thread.start()

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return os.isatty(self._fd)

    def write(self, text: bytes, /) -> int:  # type: ignore[override]
        """All of it, or nothing."""
        with self._news:
            if len(self._waiting) + len(text) > self._room:
                self.is_behind = True
            if not self.is_behind and not self._is_broken:
                self._waiting += text
                self._news.notify()
        return len(text)

    def end(self, patience_s: float) -> None:
        with self._news:
            self._is_ending = True
            self._news.notify()
        self._thread.join(patience_s)

    def _write_on(self) -> None:
        while piece := self._next():
            try:
                written = os.write(self._fd, piece)
            except BlockingIOError:  # somebody who shares the terminal has made it so
                select.select([], [self._fd], [])
                continue
            except OSError:
                written = len(piece)
                self._is_broken = True
            with self._news:
                del self._waiting[:written]
                if not self._waiting:
                    self.is_behind = False

    def _next(self) -> bytes:
        """Nothing: it is the end."""
        with self._news:
            self._news.wait_for(lambda: self._waiting or self._is_ending)
            return bytes(self._waiting[:PIECE])
