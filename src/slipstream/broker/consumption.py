"""What a commit has consumed: a group goes on behind it, in the frame in which the answers are stored (ADR 29).

Nobody holds leases for that: whoever read a window of the log says from where to where, and it holds only if the group
still stands at its beginning. So of two who read the same window one commits, and the other is told.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from slipstream.broker.changes import GroupMoved
from slipstream.broker.errors import FailedPrecondition, InvalidArgument, Unavailable
from slipstream.broker.group import Group, Progress
from slipstream.broker.state import State
from slipstream.broker.topic import Partition
from slipstream.record import LogUnreadable


class Consumed(msgspec.Struct, frozen=True):
    """A window of a topic that a group is done with: offsets from `start` up to, and without, `end`, of all its
    partitions, for offsets count per topic."""

    topic: str
    group: str
    start: int
    end: int


Moves = list[tuple[Group, list[GroupMoved]]]


def plan_moves(state: State, windows: Sequence[Consumed], move: Callable[[Partition, int], GroupMoved]) -> Moves:
    """Raises where a window is not what the group has before it; then nothing is changed."""
    moves: Moves = []
    for window in windows:
        group = _group(state, window)
        if any(group is other for other, _ in moves):
            raise InvalidArgument(f"group {window.group} of {window.topic} is named twice: name one window for it")
        try:
            found = [_move(progress, window, move) for progress in group.progress]
        except LogUnreadable as error:
            raise Unavailable(f"the place of group {window.group} cannot be found: {error}") from error
        moves.append((group, [replace(each, group_id=group.id) for each in found if each is not None]))
    return moves


def _group(state: State, window: Consumed) -> Group:
    if window.end < window.start:
        raise InvalidArgument(f"a window from {window.start} to {window.end} ends before it begins")
    topic = state.topic(window.topic)
    if window.end > topic.next_offset:
        raise InvalidArgument(
            f"{window.topic} ends at {topic.next_offset}: nobody can have consumed up to {window.end}"
        )
    group = topic.groups.get(window.group)
    if group is None:
        raise FailedPrecondition(
            f"{window.topic} has no group {window.group!r}: a seek makes it; nothing was committed"
        )
    return group


def _move(progress: Progress, window: Consumed, move: Callable[[Partition, int], GroupMoved]) -> GroupMoved | None:
    partition = progress.partition
    begin = max(partition.first_index, partition.log.index_from(window.start))
    if progress.leases or progress.postponed or progress.position != begin:
        raise FailedPrecondition(
            f"group {window.group} of {window.topic} is not at offset {window.start} with nothing in flight any more "
            f"(partition {partition.number}): somebody else reads for it, or has moved it. Nothing was committed: ask "
            "where it is, and read from there"
        )
    found = move(partition, partition.log.index_from(window.end))
    return found if found.index > progress.position else None
