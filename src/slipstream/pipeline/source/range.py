"""A piece of a partition."""

from __future__ import annotations

import msgspec


class Range(msgspec.Struct, frozen=True, order=True):
    """The messages of one partition with offsets from `start` up to, and without, `end`.

    Offsets count per topic, so there may be far fewer messages than offsets, or none.
    """

    topic: str
    incarnation: str
    """Of the topic: one that was deleted and created again has another, and other messages."""
    partition: int
    start: int
    end: int

    @property
    def width(self) -> int:
        return max(0, self.end - self.start)
