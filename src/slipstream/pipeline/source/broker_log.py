"""The log of a Slipstream server: over HTTP."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence

import msgspec
import pyarrow as pa

from slipstream.api import ReadQuery, TopicInfo, TopicList
from slipstream.client.errors import NotFound, OffsetOutOfRange
from slipstream.client.part import topic_path
from slipstream.pipeline.source.columns import combined, to_log
from slipstream.pipeline.source.errors import removed, replaced
from slipstream.pipeline.source.log import BATCH_BYTES, BATCH_ROWS, Log
from slipstream.pipeline.source.range import Range
from slipstream.pipeline.source.standing import PartitionStanding, Standing, TopicStanding
from slipstream.pipeline.source.wire import Wire


class BrokerLog(Log):
    def __init__(self, url: str, *, fail_on_data_loss: bool = True) -> None:
        super().__init__(fail_on_data_loss=fail_on_data_loss)
        self._wire = Wire(url)

    def close(self) -> None:
        self._wire.close()

    def standing(
        self,
        topics: Sequence[str] | None,
        *,
        since: dt.datetime | None = None,
        known: Standing | None = None,
        wait_ms: int = 0,
    ) -> Standing:
        names = topics if topics is not None else self._names()
        found = (self._topic(name) for name in names)
        return {topic.name: topic for topic in found if topic is not None}

    def _names(self) -> list[str]:
        return [topic.name for topic in self._wire.call("GET", "/v2/topics", TopicList).topics]

    def _topic(self, name: str) -> TopicStanding | None:
        try:
            info = self._wire.call("GET", topic_path(name), TopicInfo)
        except NotFound:
            return None
        partitions = [
            PartitionStanding(each.partition, each.first_offset, each.next_offset) for each in info.partitions
        ]
        return TopicStanding(name, info.id, partitions)

    def read(self, asked: Range) -> Iterator[pa.RecordBatch]:
        if not self._is_there(asked):
            return
        for batch in combined(self._over_http(asked), BATCH_ROWS, BATCH_BYTES):
            yield to_log(asked.topic, batch)

    def _is_there(self, asked: Range) -> bool:
        there = self._topic(asked.topic)
        incarnation = there.incarnation if there is not None else ""
        if incarnation != asked.incarnation:
            self.lose(replaced(asked, incarnation))
            return False
        return True

    def _over_http(self, asked: Range) -> Iterator[pa.RecordBatch]:
        """Page by page, as the server has them: few rows in each."""
        start = asked.start
        while start < asked.end:
            query = ReadQuery(
                partition=asked.partition, from_=start, to=asked.end, limit=BATCH_ROWS, max_bytes=BATCH_BYTES
            )
            try:
                page = self._wire.read(asked.topic, query)
            except OffsetOutOfRange as error:
                left = msgspec.structs.replace(asked, start=start)
                self.lose(removed(left, error.earliest_offset))
                start = error.earliest_offset
                continue
            except NotFound:
                self.lose(replaced(msgspec.structs.replace(asked, start=start), ""))
                return
            if not page.batches:
                return
            yield from page.batches
            start = page.next_offset
