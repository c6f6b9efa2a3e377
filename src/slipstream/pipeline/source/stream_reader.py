"""Reading on, micro-batch by micro-batch.

Spark asks the driver's reader where it begins and how far it may read, keeps the answers in its checkpoint, and has
other instances read in tasks. It may ask about the same batch again after a crash; what it gets is the same.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from msgspec.structs import replace
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from slipstream.pipeline.source.errors import removed, replaced
from slipstream.pipeline.source.log import Log
from slipstream.pipeline.source.offsets import Offsets, TopicOffsets, from_dict, ranges_between
from slipstream.pipeline.source.opening import log_of
from slipstream.pipeline.source.options import Options
from slipstream.pipeline.source.planning import shares, tasks_of
from slipstream.pipeline.source.positions import starting
from slipstream.pipeline.source.range import Range
from slipstream.pipeline.source.reading import Task, read_task
from slipstream.pipeline.source.standing import Standing, TopicStanding

log = logging.getLogger(__name__)

WAIT_MS = 500
"""How long the server is asked to wait for something new: Spark asks again at once, and a query that is stopped waits
for it."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: Options) -> None:
        self._options = options
        self._log: Log | None = None
        self._initial: Offsets | None = None
        self._known: Standing | None = None
        """All that was asked for, as it was seen last …"""
        self._standing: Standing | None = None
        """… and of that, what is read."""
        self._holding = False
        """There is something, but not enough of it."""
        self._target: Standing | None = None
        """With AvailableNow: as if nothing had come after it."""
        self._batch_at = time.monotonic()
        """When there was something last."""
        self._told: set[str] = set()
        """Topics of which it was said that they are not there yet …"""
        self._left_out: set[str] = set()
        """… and that they are not wanted any more."""

    # Where to begin, and how far to go

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Asked twice, and the answers must be the same."""
        if self._initial is None:
            standing = self._look()
            self._initial = Offsets(starting(self._open(), self._options, standing), initial=True)
        return self._initial.to_dict()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        options = self._options
        if options.rows_max is None and options.rows_min is None:
            return ReadAllAvailable()
        return ReadMaxRows(options.rows_max or ROWS_MAX)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._look()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        begin = from_dict(start)
        standing = self._target if self._target is not None else self._look(wait=not self._is_behind(begin))
        from_ = self._readable(begin, standing)
        backlogs = {name: _backlog(from_[name], standing[name]) for name in from_}
        if isinstance(limit, ReadMaxRows):
            self._holding = self._holds_back(sum(backlogs.values()))
            if self._holding:
                return start
            backlogs = shares(backlogs, limit.max_rows)
        reached = {name: self._reached(from_[name], standing[name], backlogs[name]) for name in from_}
        end = Offsets(
            {name: offsets for name, offsets in reached.items() if name in begin.topics or offsets != from_[name]},
            begun=begin.topics if begin.initial else None,
        )
        if end.topics == begin.topics:
            return start
        self._batch_at = time.monotonic()
        return end.to_dict()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        if self._standing is None:
            return None
        return Offsets({name: self._end(topic) for name, topic in self._standing.items()}).to_dict()

    def _look(self, *, wait: bool = False) -> Standing:
        """`wait`: at most for half a second, for something new. A query that has nothing to do costs next to nothing,
        and one that has begins at once."""
        known = self._known if wait else None
        self._known = self._open().standing(
            self._options.named, known=known, wait_ms=WAIT_MS if known is not None else 0
        )
        self._standing = {name: topic for name, topic in self._known.items() if self._options.wants(name)}
        for name in self._options.named or ():
            if name not in self._standing and name not in self._told:
                log.warning("there is no topic %s yet: it is read from its beginning once it is there", name)
                self._told.add(name)
        return self._standing

    def _is_behind(self, begin: Offsets) -> bool:
        """Whether it is known already that there is something to read, and enough of it."""
        if self._standing is None or self._holding:
            return False
        return any(
            name not in begin.topics or topic.end > begin.topics[name].least
            for name, topic in self._standing.items()
            if topic.end
        )

    def _end(self, topic: TopicStanding) -> TopicOffsets:
        return TopicOffsets(topic.incarnation, dict.fromkeys(self._numbers(topic), topic.end))

    def _numbers(self, topic: TopicStanding) -> list[int]:
        numbers = [each.number for each in topic.partitions]
        return [number for number in numbers if self._options.wants_partition(topic.name, number)]

    def _readable(self, begin: Offsets, standing: Standing) -> dict[str, TopicOffsets]:
        """Where each topic is read on from: where it was left, if that is still there."""
        opened = self._open()
        found = {}
        for name, left in begin.topics.items():
            if not self._is_wanted(name):
                continue
            topic = standing.get(name)
            if topic is None or topic.incarnation != left.incarnation:
                incarnation = topic.incarnation if topic is not None else ""
                for number, offset in left.partitions.items():
                    opened.lose(replaced(Range(name, left.incarnation, number, offset, offset), incarnation))
        for name, topic in standing.items():
            before = begin.topics.get(name)
            if before is None or before.incarnation != topic.incarnation:
                before = TopicOffsets(topic.incarnation, {})
            positions = {}
            for each in topic.partitions:
                if self._options.wants_partition(name, each.number):
                    left_at = before.of(each.number)
                    if left_at < each.first:
                        opened.lose(
                            removed(Range(name, topic.incarnation, each.number, left_at, topic.end), each.first)
                        )
                    positions[each.number] = max(left_at, each.first)
            found[name] = TopicOffsets(topic.incarnation, positions)
        return found

    def _is_wanted(self, name: str) -> bool:
        """A checkpoint may speak of more than the options do now. What was left out is no loss."""
        if self._options.wants(name):
            return True
        if name not in self._left_out:
            log.info("%s is read no more: the options leave it out, and so does the checkpoint from now on", name)
            self._left_out.add(name)
        return False

    def _reached(self, from_: TopicOffsets, topic: TopicStanding, rows: int) -> TopicOffsets:
        """All partitions up to the same offset, for that many rows are in them together."""
        cut = min(topic.end, from_.least + rows)
        return TopicOffsets(
            topic.incarnation, {number: max(offset, cut) for number, offset in from_.partitions.items()}
        )

    def _holds_back(self, rows: int) -> bool:
        options = self._options
        if options.rows_min is None or self._target is not None or rows >= options.rows_min:
            return False
        return (time.monotonic() - self._batch_at) * 1000 < options.delay_ms_max

    # What to read

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        ranges = ranges_between(from_dict(start), from_dict(end))
        if self._standing is None:  # a batch that was begun before a restart
            self._look()
        assert self._standing is not None
        standing = self._standing
        there = [each for each in (self._there(each, standing) for each in ranges) if each is not None]
        tasks = tasks_of(there, self._options.tasks_min)
        gone = [each for each in there if not each.width]
        if gone and self._options.content == "ranges":
            # Nothing of them is left to read. Who gets the ranges sees where they begin, and so what is missing.
            tasks.append(gone)
        return [Task(each) for each in tasks]

    def _there(self, asked: Range, standing: Standing) -> Range | None:
        """What is gone is said here, once, and not by every task; the tasks say what goes while they read."""
        if not self._is_wanted(asked.topic):
            return None
        topic = standing.get(asked.topic)
        if topic is None or topic.incarnation != asked.incarnation:
            self._open().lose(replaced(asked, topic.incarnation if topic is not None else ""))
            return None
        first = next((each.first for each in topic.partitions if each.number == asked.partition), 0)
        if asked.start < first:
            self._open().lose(removed(asked, first))
        return replace(asked, start=min(max(asked.start, first), asked.end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(self._options, partition)

    # The rest

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing depends on it: it comes late, and not at all for the last batch."""

    def stop(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None

    def _open(self) -> Log:
        if self._log is None:
            self._log = log_of(self._options)
        return self._log


ROWS_MAX = 2**62


def _backlog(from_: TopicOffsets, topic: TopicStanding) -> int:
    return max(0, topic.end - from_.least) if from_.partitions else 0
