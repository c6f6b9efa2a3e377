"""The dead letters of the bus that were redriven or discarded, on a broker of our own.

There they stay in their topic, such as `orders.DLQ`, and the bus records them in `orders.DLQ.handled`. The overview
counts a dead letter as long as there is no such record.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping

import msgspec

from slipstream.api.events import Stats, TopicStats
from slipstream.console.sources import StatsSource, TopicLog
from slipstream.console.watch import BUS_SUFFIX

log = logging.getLogger(__name__)

HANDLED_SUFFIX = ".handled"
"""As in `slipstream.bus.dead_letters`, which would load all of the bus; a test compares the two."""


class _Record(msgspec.Struct, frozen=True):
    partition: int
    offset: int


class _Known(msgspec.Struct):
    """One topic of records, as far as it was read."""

    created_ms: int
    next_offsets: dict[int, int] = {}
    """Partition → where to read on."""
    places: dict[tuple[int, int], int] = {}
    """(partition, offset) of a dead letter → when it was recorded last."""
    seen: tuple[int, ...] = ()
    """The numbers of both topics when they were read."""
    count: int = 0


class HandledCounts:
    """Reads only what was recorded since the last time.

    Example:
        handled = HandledCounts(source)
        counts = await handled.count(stats)  # {"orders.DLQ": 3}
    """

    def __init__(self, source: StatsSource) -> None:
        self._source = source
        self._known: dict[str, _Known] = {}

    async def count(self, stats: Stats) -> Mapping[str, int]:
        """Return how many messages of each dead-letter topic of the bus were handled and are still stored. Raise Away
        if the broker does not answer."""
        topics = {topic.topic: topic for topic in stats.topics}
        counts: dict[str, int] = {}
        for name, dead in topics.items():
            records = topics.get(name + HANDLED_SUFFIX)
            if name.endswith(BUS_SUFFIX) and dead.messages and records is not None and records.messages:
                counts[name] = await self._count(dead, records)
        self._known = {name: known for name, known in self._known.items() if name in counts}
        return counts

    async def _count(self, dead: TopicStats, records: TopicStats) -> int:
        seen = (dead.messages, dead.bytes, records.messages, records.bytes)
        known = self._known.get(dead.topic)
        if known is not None and known.seen == seen:
            return known.count
        of_dead, of_records = await self._source.log_of(dead.topic), await self._source.log_of(records.topic)
        if of_dead is None or of_records is None:
            return 0  # deleted since the numbers were taken
        if known is None or known.created_ms != of_records.created_ms:
            known = _Known(of_records.created_ms)
        await self._read(records.topic, of_records, known)
        # A topic that was deleted and made again has other dead letters at the same places.
        known.places = {
            (partition, offset): recorded_ms
            for (partition, offset), recorded_ms in known.places.items()
            if recorded_ms >= of_dead.created_ms
            and partition < len(of_dead.first_offsets)
            and offset >= of_dead.first_offsets[partition]
        }
        known.seen, known.count = seen, len(known.places)
        self._known[dead.topic] = known
        return known.count

    async def _read(self, topic: str, records: TopicLog, known: _Known) -> None:
        for partition, first in enumerate(records.first_offsets):
            start = max(first, known.next_offsets.get(partition, 0))
            async with contextlib.aclosing(self._source.log(topic, partition, start)) as found:
                async for record in found:
                    known.next_offsets[partition] = record.offset + 1
                    try:
                        place = msgspec.json.decode(record.value, type=_Record)
                    except msgspec.DecodeError as error:
                        log.debug("%s/%d/%d is no record of the bus: %s", topic, partition, record.offset, error)
                    else:
                        known.places[place.partition, place.offset] = record.timestamp_ms
