"""What a commit has consumed: a group goes on behind it, in the frame in which the answers are stored (ADR 29).

Nobody holds leases for that: whoever read a window of the log says from where to where, and it holds only if the group
still stands at its beginning. So of two who read the same window one commits, and the other is told.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from slipstream.broker.changes import GroupMoved
from slipstream.broker.errors import FailedPrecondition, InvalidArgument, NotFound, Unavailable
from slipstream.broker.group import Progress
from slipstream.broker.state import State
from slipstream.broker.topic import Partition, Topic
from slipstream.record import LogUnreadable


class Consumed(msgspec.Struct, frozen=True):
    """A window of a topic that a group is done with: offsets from `start` up to, and without, `end`, of one of its
    partitions, or of all, for offsets count per topic."""

    topic: str
    group: str
    start: int
    end: int
    partition: int | None = None
    incarnation: str = ""
    """Of the topic that was read; "" for any. One that was created again has other messages at the same offsets."""


class Moves(msgspec.Struct, frozen=True):
    """Where a group goes with a commit. One that is not there yet stands at the beginning."""

    topic: Topic
    group: str
    moves: list[GroupMoved]


def plan_moves(state: State, windows: Sequence[Consumed], find: Callable[[Partition, int], GroupMoved]) -> list[Moves]:
    """Raises where a window is not what the group has before it; then nothing is changed."""
    planned: dict[tuple[Topic, str], Moves] = {}
    seen: set[tuple[Topic, str, int]] = set()
    for window in windows:
        topic = _topic(state, window)
        moves = planned.setdefault((topic, window.group), Moves(topic, window.group, []))
        for partition in _partitions(topic, window):
            if (topic, window.group, partition.number) in seen:
                raise InvalidArgument(
                    f"group {window.group} has two windows of {window.topic}/{partition.number}: name one"
                )
            seen.add((topic, window.group, partition.number))
            try:
                move = _move(topic, partition, window, find)
            except LogUnreadable as error:
                raise Unavailable(f"the place of group {window.group} cannot be found: {error}") from error
            if move is not None:
                moves.moves.append(move)
    return list(planned.values())


def _topic(state: State, window: Consumed) -> Topic:
    if window.end < window.start:
        raise InvalidArgument(f"a window from {window.start} to {window.end} ends before it begins")
    topic = state.topic(window.topic)
    if window.incarnation not in {"", topic.incarnation} or window.end > topic.next_offset:
        raise FailedPrecondition(
            f"{window.topic} is not the topic that was read up to offset {window.end}: it ends at {topic.next_offset}, "
            "and was deleted and created again. Nothing was committed"
        )
    return topic


def _partitions(topic: Topic, window: Consumed) -> Sequence[Partition]:
    if window.partition is None:
        return topic.partitions
    if not 0 <= window.partition < len(topic.partitions):
        raise NotFound(f"partition out of range: {topic.name} has partitions 0 to {len(topic.partitions) - 1}")
    return [topic.partitions[window.partition]]


def _move(
    topic: Topic, partition: Partition, window: Consumed, find: Callable[[Partition, int], GroupMoved]
) -> GroupMoved | None:
    group = topic.groups.get(window.group)
    if group is not None and group.paused:
        raise FailedPrecondition(f"group {window.group} of {topic.name} is paused. Nothing was committed: resume it")
    progress = None if group is None else group.progress[partition.number]
    position = partition.first_index if progress is None else progress.position
    # Messages for other groups only are passed over as they come, also between reading the window and this commit.
    position = partition.first_for(window.group, position)
    begin = partition.first_for(window.group, max(partition.first_index, partition.log.index_from(window.start)))
    if position != begin or (progress is not None and _holds_something(progress)):
        raise FailedPrecondition(
            f"group {window.group} is not at offset {window.start} of {topic.name}/{partition.number} with nothing in "
            "flight, or not any more: somebody else reads for it, or has moved it. Nothing was committed: ask where it "
            "is, and read from there"
        )
    found = find(partition, partition.log.index_from(window.end))
    # Also where nothing of the partition was in the window: else whoever asks where the group is would be sent back to
    # the last message that it had there, however long ago that was.
    cursor = max(found.cursor, window.end - 1)
    known = -1 if progress is None else progress.cursor
    return replace(found, cursor=cursor) if found.index > position or cursor > known else None


def _holds_something(progress: Progress) -> bool:
    return bool(progress.leases or progress.postponed)
