"""Lines of what comes in pieces."""

from __future__ import annotations

import re
from collections.abc import Iterator

LINE_MAX = 1 << 16
"""Bytes. What is longer becomes several: nobody knows whether its end ever comes."""

_END = re.compile(rb"\r*\n\r*|\r+")


class Lines:
    """A line ends with a newline, or where something goes back to write over it, as a progress bar does."""

    def __init__(self) -> None:
        self._rest = b""

    def add(self, piece: bytes) -> Iterator[bytes]:
        """Those that end with it, without their ends."""
        text = (self._rest + piece).lstrip(b"\r")
        whole = text.rstrip(b"\r")  # a newline may follow, and ends the same line
        *lines, rest = _END.split(whole)
        for line in lines:
            yield from _cut(line)
        *full, rest = _cut(rest)
        yield from full
        self._rest = rest + text[len(whole) : len(whole) + 1]

    def end(self) -> Iterator[bytes]:
        """What is left without one."""
        if rest := self._rest.rstrip(b"\r"):
            yield rest


def _cut(line: bytes) -> list[bytes]:
    return [line[at : at + LINE_MAX] for at in range(0, len(line), LINE_MAX)] or [line]
