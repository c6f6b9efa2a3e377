"""Which task reads what.

Offsets count per topic: a window of so many offsets holds at most so many messages, over all partitions of the topic
together, however the keys are spread. So windows are what is shared out, and every task has about the same to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from msgspec.structs import replace

from slipstream.pipeline.source.range import Range

TASK_ROWS = 500_000
"""A task more costs 30 ms and more, and these a third of a second: with half of it, a million took a tenth longer."""


def tasks_of(ranges: Iterable[Range], tasks_min: int = 1) -> list[list[Range]]:
    """Small topics share a task, and large ones are split."""
    topics = [
        list(group)
        for _, group in groupby(
            sorted(each for each in ranges if each.width), key=lambda each: (each.topic, each.incarnation)
        )
    ]
    total = sum(_extent(topic)[1] - _extent(topic)[0] for topic in topics)
    if not total:
        return []
    count = max(tasks_min, -(-total // TASK_ROWS))
    rows = -(-total // count)
    tasks: list[list[Range]] = [[]]
    room = rows
    for topic in topics:
        start, end = _extent(topic)
        while start < end:
            if not room:
                tasks.append([])
                room = rows
            taken = min(room, end - start)
            tasks[-1].extend(_window(topic, start, start + taken))
            start += taken
            room -= taken
    return _newest_early([task for task in tasks if task])


def _newest_early(tasks: list[list[Range]]) -> list[list[Range]]:
    """What is newest is in no file yet, and takes longest: begun last, it would be waited for. The first stays: it is
    what somebody sees who looks at the first rows."""
    return [tasks[0], tasks[-1], *tasks[1:-1]] if len(tasks) > 2 else tasks


def _extent(ranges: Sequence[Range]) -> tuple[int, int]:
    return min(each.start for each in ranges), max(each.end for each in ranges)


def _window(ranges: Sequence[Range], start: int, end: int) -> list[Range]:
    cut = (replace(each, start=max(each.start, start), end=min(each.end, end)) for each in ranges)
    return [each for each in cut if each.width]


def shares(backlogs: dict[str, int], limit: int) -> dict[str, int]:
    """How much of each topic fits into one batch: in proportion to what it has, and all of the limit is used."""
    total = sum(backlogs.values())
    if total <= limit:
        return backlogs
    found = {name: backlog * limit // total for name, backlog in backlogs.items()}
    left = limit - sum(found.values())
    for name in sorted(backlogs, key=lambda name: found[name] - backlogs[name]):
        more = min(left, backlogs[name] - found[name])
        found[name] += more
        left -= more
    return found
