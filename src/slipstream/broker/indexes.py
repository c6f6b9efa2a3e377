"""A set of indexes of a log, kept as ranges: what is marked mostly lies together."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable


class IndexSet:
    """Grows by single indexes, and is cut off from below as retention removes records."""

    __slots__ = ("_ends", "_starts", "size")

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        """Each the index behind the last of its range; ranges neither overlap nor touch."""
        self.size = 0
        for start, end in ranges:
            self._starts.append(start)
            self._ends.append(end)
            self.size += end - start

    def __contains__(self, index: int) -> bool:
        at = bisect_right(self._starts, index) - 1
        return at >= 0 and index < self._ends[at]

    def __bool__(self) -> bool:
        return self.size > 0

    def ranges(self) -> list[tuple[int, int]]:
        return list(zip(self._starts, self._ends, strict=True))

    def add(self, index: int) -> None:
        at = bisect_right(self._starts, index) - 1
        if at >= 0 and index < self._ends[at]:
            return
        self.size += 1
        joins_left = at >= 0 and self._ends[at] == index
        joins_right = at + 1 < len(self._starts) and self._starts[at + 1] == index + 1
        if joins_left and joins_right:
            self._ends[at] = self._ends.pop(at + 1)
            del self._starts[at + 1]
        elif joins_left:
            self._ends[at] = index + 1
        elif joins_right:
            self._starts[at + 1] = index
        else:
            self._starts.insert(at + 1, index)
            self._ends.insert(at + 1, index + 1)

    def drop_below(self, index: int) -> None:
        gone = bisect_right(self._ends, index)
        del self._starts[:gone], self._ends[:gone]
        if self._starts and self._starts[0] < index:
            self._starts[0] = index
        self.size = sum(self._ends) - sum(self._starts)

    def drop_from(self, index: int) -> None:
        """Remove everything at and above an index."""
        kept = [(start, min(end, index)) for start, end in self.ranges() if start < index]
        self._starts = [start for start, _ in kept]
        self._ends = [end for _, end in kept]
        self.size = sum(self._ends) - sum(self._starts)

    def cut_out(self, first: int, end: int) -> None:
        """The records from `first` up to `end` are no more, and those behind them have moved down."""
        kept = [index for start, stop in self.ranges() for index in range(start, stop) if not first <= index < end]
        self._starts, self._ends, self.size = [], [], 0
        for index in kept:
            self.add(index if index < first else index - (end - first))
