"""What was gone before it could be read, said to whoever runs the pipeline: with PIPELINE_FAIL_ON_DATA_LOSS=false it
goes on, and the logs of Spark's processes are read by nobody."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slipstream.pipeline.checkpoint import TopicReached
    from slipstream.pipeline.queries.task import Done

log = logging.getLogger(__name__)


def say_what_is_missed(
    before: Mapping[str, TopicReached], after: Mapping[str, TopicReached], done: Sequence[Done]
) -> None:
    """`before`: how far the last batch has read; `after`: how far this one does."""
    for topic, left in sorted(before.items()):
        now = after.get(topic)
        if now is None or now.incarnation != left.incarnation:
            reached = max(left.partitions.values(), default=0)
            log.warning("%s was deleted: whatever it had from offset %d on is in no table", topic, reached)
            continue
        read = [(each.partition, each.start, each.end) for one in done for each in one.ranges if each.topic == topic]
        for number, end in sorted(now.partitions.items(), key=lambda item: int(item[0])):
            begin = left.partitions.get(number)
            if begin is None:
                continue  # it is new, and read from its beginning
            mine = sorted((start, stop) for partition, start, stop in read if partition == int(number))
            for first, last in gaps(begin, end, mine):
                _say(topic, int(number), first, last)
    for one in done:
        for lost in one.lost:
            _say(lost.topic, lost.partition, lost.start, lost.end - 1)


def _say(topic: str, partition: int, first: int, last: int) -> None:
    log.warning(
        "%s/%d: offsets %d to %d were removed before they were read, and are in no table", topic, partition, first, last
    )


def gaps(begin: int, end: int, read: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """First and last of what lies between `begin` and `end` and was not read; `read` is in order."""
    for start, stop in read:
        if start > begin:
            yield begin, start - 1
        begin = max(begin, stop)
    if begin < end:
        yield begin, end - 1
