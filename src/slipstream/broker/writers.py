"""Writers: who commits in sequence, and how far each of them has come."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

WriterImage: TypeAlias = tuple[str, int, int]
"""(name, sequence, when)"""


class Writer(msgspec.Struct, frozen=True, gc=False):
    sequence: int
    """Of its last commit."""
    at_ms: int
    """When that was."""


class Writers:
    """Those that have committed within `ttl_ms`. Forgotten only when another commits, so that a restart, which applies
    the same commits, comes to the same end."""

    def __init__(self, ttl_ms: int) -> None:
        self.ttl_ms = ttl_ms
        self._writers: dict[str, Writer] = {}
        """In the order of their last commits."""

    def __len__(self) -> int:
        return len(self._writers)

    def last(self, name: str, now_ms: int) -> int | None:
        """The sequence of its last commit; None for one that is not known, or not any more."""
        writer = self._writers.get(name)
        return writer.sequence if writer is not None and writer.at_ms + self.ttl_ms > now_ms else None

    def count(self, now_ms: int) -> int:
        return sum(writer.at_ms + self.ttl_ms > now_ms for writer in self._writers.values())

    def commit(self, name: str, sequence: int, at_ms: int) -> None:
        self._writers.pop(name, None)
        self._writers[name] = Writer(sequence, at_ms)
        while (oldest := next(iter(self._writers))) != name and self._writers[oldest].at_ms + self.ttl_ms <= at_ms:
            del self._writers[oldest]

    def image(self) -> list[WriterImage]:
        return [(name, writer.sequence, writer.at_ms) for name, writer in self._writers.items()]

    def restore(self, image: list[WriterImage]) -> None:
        self._writers = {name: Writer(sequence, at_ms) for name, sequence, at_ms in image}
