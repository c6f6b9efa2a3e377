"""Messages of a partition for one group only: dead letters that were sent back to the group they failed for."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable


class AddressedMessages:
    """Runs of indexes in ascending order, each with the one group that gets its messages.

    A message that is not in here is for every group of its topic.
    """

    __slots__ = ("_ends", "_groups", "_starts")

    def __init__(self, runs: Iterable[tuple[int, int, str]] = ()) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        """The index behind the last one of each run."""
        self._groups: list[str] = []
        for start, end, group in runs:
            self._append(start, end, group)

    def __bool__(self) -> bool:
        return bool(self._starts)

    def runs(self) -> list[tuple[int, int, str]]:
        return list(zip(self._starts, self._ends, self._groups, strict=True))

    def add(self, index: int, group: str) -> None:
        """Note a message that was just appended to the log, so its index is the highest yet."""
        self._append(index, index + 1, group)

    def _append(self, start: int, end: int, group: str) -> None:
        if self._ends and self._ends[-1] == start and self._groups[-1] == group:
            self._ends[-1] = end
            return
        self._starts.append(start)
        self._ends.append(end)
        self._groups.append(group)

    def is_for(self, index: int, group: str) -> bool:
        """Return whether the group gets the message at this index."""
        at = bisect_right(self._starts, index) - 1
        return at < 0 or index >= self._ends[at] or self._groups[at] == group

    def first_for(self, index: int, group: str) -> int:
        """Return the first index at or behind this one that the group gets."""
        while not self.is_for(index, group):
            index = self._ends[bisect_right(self._starts, index) - 1]
        return index

    def for_others(self, start: int, end: int, group: str) -> int:
        """Count the messages from `start` up to `end` that the group does not get."""
        count = 0
        for at in range(bisect_right(self._ends, start), bisect_left(self._starts, end)):
            if self._groups[at] != group:
                count += min(end, self._ends[at]) - max(start, self._starts[at])
        return count

    def drop_below(self, index: int) -> None:
        """Forget the messages that retention removed."""
        gone = bisect_right(self._ends, index)
        del self._starts[:gone], self._ends[:gone], self._groups[:gone]
        if self._starts and self._starts[0] < index:
            self._starts[0] = index

    def cut_out(self, first: int, end: int) -> None:
        """Forget the records from `first` up to `end`, which a repair removed; later ones have moved down."""
        width = end - first
        runs = self.runs()
        self._starts, self._ends, self._groups = [], [], []
        for start, stop, group in runs:
            if start < first:
                self._append(start, min(stop, first), group)
            if stop > end:
                self._append(max(start, end) - width, stop - width, group)
