"""The log of a Slipstream server: its segment files where they can be seen, and HTTP for all else."""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from msgspec.structs import replace

from slipstream.api import OffsetsRequest, OffsetsResponse, ReadQuery, SegmentList, SegmentsQuery
from slipstream.client.errors import NotFound, OffsetOutOfRange
from slipstream.client.part import topic_path
from slipstream.log_columns import log_columns
from slipstream.pipeline.source.columns import BESIDE, LOG_SCHEMA, combined, to_log, without_meta
from slipstream.pipeline.source.errors import removed, replaced
from slipstream.pipeline.source.log import BATCH_BYTES, BATCH_ROWS, Log
from slipstream.pipeline.source.range import Range
from slipstream.pipeline.source.segments import SegmentUnusable, read_segment, sees_directory
from slipstream.pipeline.source.standing import PartitionStanding, Standing, TopicStanding
from slipstream.pipeline.source.wire import ArrowPage, Wire

log = logging.getLogger(__name__)


class BrokerLog(Log):
    def __init__(self, url: str, *, fail_on_data_loss: bool = True, files: bool = True) -> None:
        super().__init__(fail_on_data_loss=fail_on_data_loss)
        self._wire = Wire(url)
        self._files = files
        """False: only over HTTP."""

    def close(self) -> None:
        self._wire.close()

    # How far topics reach

    def standing(
        self,
        topics: Sequence[str] | None,
        *,
        since: dt.datetime | None = None,
        known: Standing | None = None,
        wait_ms: int = 0,
    ) -> Standing:
        request = OffsetsRequest(
            topics=None if topics is None else list(topics),
            since=since,
            known=None if known is None else {name: _ends(topic) for name, topic in known.items()},
            wait_ms=wait_ms,
        )
        answer = self._wire.call("POST", "/v2/offsets", OffsetsResponse, body=request, wait_ms=wait_ms)
        return {
            topic.name: TopicStanding(
                topic.name,
                topic.incarnation,
                [
                    PartitionStanding(each.partition, each.first_offset, each.end_offset, each.since_offset)
                    for each in topic.partitions
                ],
            )
            for topic in answer.topics
        }

    # Reading

    def read(self, asked: Range, names: Sequence[str] = LOG_SCHEMA.names) -> Iterator[pa.RecordBatch]:
        if not asked.width:
            return
        left = self._left(asked)
        bare = BESIDE.isdisjoint(names)
        for stored in combined(left.in_files(), BATCH_ROWS, BATCH_BYTES):
            columns = log_columns(asked.partition, without_meta(stored) if bare else stored)
            yield to_log(asked.topic, columns, names)
        for batch in combined(left.over_http(), BATCH_ROWS, BATCH_BYTES):
            yield to_log(asked.topic, batch, names)

    def _left(self, asked: Range) -> _Left:
        return _Left(self, self._wire, asked, files=self._files)


class _Left:
    """What is left of a range: the files first, and then over HTTP what is in none, or in one that went away."""

    def __init__(self, owner: Log, wire: Wire, asked: Range, *, files: bool) -> None:
        self._owner = owner
        self._wire = wire
        self._asked = asked
        """Its start moves on."""
        self._files = files

    @property
    def _is_done(self) -> bool:
        return not self._asked.width

    def in_files(self) -> Iterator[pa.RecordBatch]:
        """As they are stored, in small pages."""
        listed = self._list() if self._files else None
        if listed is None or not sees_directory(listed):
            return
        directory = Path(listed.directory)
        for segment in listed.segments:
            last: pa.RecordBatch | None = None
            try:
                for batch in read_segment(directory, segment, self._asked.start, self._asked.end):
                    last = batch
                    yield batch
            except SegmentUnusable as error:
                log.info("reading over HTTP what is not to be had as a file: %s", error)
                if last is not None:
                    self._reached(last.column("offset")[-1].as_py() + 1)
                return
            self._reached(segment.last_offset + 1)
        self._reached(listed.next_offset)

    def _list(self) -> SegmentList | None:
        path = topic_path(self._asked.topic, "segments")
        while not self._is_done:
            query = SegmentsQuery(partition=self._asked.partition, from_=self._asked.start, to=self._asked.end)
            try:
                listed = self._wire.call("GET", path, SegmentList, query=query)
            except OffsetOutOfRange as error:
                self._removed(error)
            except NotFound:
                self._replaced("")
            else:
                if listed.incarnation == self._asked.incarnation:
                    return listed
                self._replaced(listed.incarnation)
        return None

    def over_http(self) -> Iterator[pa.RecordBatch]:
        """As the server answers, in small pages."""
        while not self._is_done:
            page = self._page()
            if page is None:
                continue
            yield from page.batches
            if not page.batches or page.next_offset >= page.end_offset:
                return
            self._reached(page.next_offset)

    def _page(self) -> ArrowPage | None:
        asked = self._asked
        query = ReadQuery(
            partition=asked.partition, from_=asked.start, to=asked.end, limit=BATCH_ROWS, max_bytes=BATCH_BYTES
        )
        try:
            page = self._wire.read(asked.topic, query)
        except OffsetOutOfRange as error:
            self._removed(error)
        except NotFound:
            self._replaced("")
        else:
            if page.incarnation == asked.incarnation:
                return page
            self._replaced(page.incarnation)
        return None

    def _reached(self, offset: int) -> None:
        self._asked = replace(self._asked, start=max(self._asked.start, min(offset, self._asked.end)))

    def _removed(self, error: OffsetOutOfRange) -> None:
        self._owner.lose(removed(self._asked, error.earliest_offset))
        self._reached(error.earliest_offset)

    def _replaced(self, incarnation: str) -> None:
        self._owner.lose(replaced(self._asked, incarnation))
        self._reached(self._asked.end)


def _ends(topic: TopicStanding) -> list[int]:
    return [each.end for each in topic.partitions]
