"""A piece of the step's topic that is read, done and committed as one."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from slipstream.api import ConsumedWindow
from slipstream.pipeline.source.range import Range


class Window(msgspec.Struct, frozen=True):
    """From where the group is in each partition, up to one offset for all."""

    starts: dict[int, int]
    """Partition → the first offset of it that is not done; those that are further than `end` are not in it."""
    end: int

    @property
    def begin(self) -> int:
        return min(self.starts.values())

    @property
    def width(self) -> int:
        """Offsets, of which each may be a message."""
        return self.end - self.begin

    def ranges(self, topic: str, incarnation: str) -> list[Range]:
        return [Range(topic, incarnation, number, start, self.end) for number, start in sorted(self.starts.items())]

    def consumed(self, topic: str, incarnation: str, group: str) -> list[ConsumedWindow]:
        return [
            ConsumedWindow(
                topic=topic, incarnation=incarnation, group=group, partition=number, from_=start, to=self.end
            )
            for number, start in sorted(self.starts.items())
        ]

    def halves(self) -> tuple[Window, Window]:
        """One after the other; of one offset there are none."""
        assert self.width > 1, f"{self} cannot be halved"
        middle = self.begin + self.width // 2
        first, *_ = windows_of(self.starts, middle, self.width)
        return first, Window(behind(self.starts, middle), self.end)


def windows_of(starts: Mapping[int, int], end: int, rows: int) -> list[Window]:
    """All that lies before `end`, in windows of so many offsets."""
    windows = []
    while (left := {number: start for number, start in starts.items() if start < end}) != {}:
        upto = min(end, min(left.values()) + rows)
        inside = {number: start for number, start in left.items() if start < upto}
        windows.append(Window(inside, upto))
        starts = behind(starts, upto)
    return windows


def behind(starts: Mapping[int, int], end: int) -> dict[int, int]:
    """Where a group is when it has done everything below `end`."""
    return {number: max(start, end) for number, start in starts.items()}
