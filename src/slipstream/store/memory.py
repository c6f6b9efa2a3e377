"""A store without a directory, for tests and the bus inside a process: all is gone when it is closed.

No thread, no file: what is submitted is as safe as it will ever be, and its owner is told in the next turn of the loop.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from operator import attrgetter
from pathlib import Path

from slipstream.record import Record
from slipstream.store.checkpoint import SegmentInfo
from slipstream.store.compactor import PartitionKey
from slipstream.store.damage import TornTail
from slipstream.store.room import Room
from slipstream.store.slice import LogSlice
from slipstream.store.store import Owner, Schedule, StoreConfig

_offset = attrgetter("offset")


class MemoryLog:
    """The records of one partition that retention has left."""

    __slots__ = ("first_bytes", "first_index", "records")

    segments: Sequence[SegmentInfo] = ()
    """There are no files."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.first_index = 0
        self.first_bytes = 0
        """Payload bytes ever written before that."""

    @property
    def end_index(self) -> int:
        return self.first_index + len(self.records)

    def append(self, record: Record) -> None:
        self.records.append(record)

    def extend(self, records: Sequence[Record]) -> None:
        self.records += records

    def start_at(self, index: int, payload_bytes: int) -> None:
        assert not self.records, "only an empty log can be moved"
        self.first_index = index
        self.first_bytes = payload_bytes

    def read(self, index: int) -> Record:
        assert index >= self.first_index, f"record {index} was removed by retention"
        return self.records[index - self.first_index]

    def index_of(self, offset: int) -> int | None:
        index = self.index_from(offset)
        return index if index < self.end_index and self.read(index).offset == offset else None

    def offset_before(self, index: int) -> int:
        return self.read(index - 1).offset

    def index_from(self, offset: int) -> int:
        return self.first_index + bisect_left(self.records, offset, key=_offset)

    def index_at(self, timestamp_ms: int) -> int:
        for index, record in enumerate(self.records, self.first_index):
            if record.timestamp_ms >= timestamp_ms:
                return index
        return self.end_index

    def bytes_before(self, index: int) -> int:
        return self.first_bytes + sum(record.size for record in self.records[: index - self.first_index])

    def slice(self, first_index: int, end_index: int, limit_bytes: int) -> LogSlice:
        assert first_index >= self.first_index, f"record {first_index} was removed by retention"
        last = max(first_index, end_index) - self.first_index
        return LogSlice(first_index, limit_bytes, [], self.records[first_index - self.first_index : last])

    def expired(self, before_ms: int | None, up_to_bytes: int, below_index: int) -> tuple[int, int, int] | None:
        """As `Store.expired` says, record by record."""
        index, size = self.first_index, self.first_bytes
        for record in self.records:
            old = before_ms is not None and record.timestamp_ms < before_ms
            excess = 0 < up_to_bytes >= size + record.size
            if index >= below_index or not (old or excess):
                break
            index += 1
            size += record.size
        return (index, size, self.read(index - 1).offset + 1) if index > self.first_index else None

    def drop_below(self, index: int) -> None:
        self.first_bytes = self.bytes_before(index)
        del self.records[: index - self.first_index]
        self.first_index = index


class MemoryJournal:
    """Nothing is ever synced."""

    sync_count = 0
    sync_seconds = 0.0


class MemoryCompactor:
    """Nothing is ever compacted."""

    backlog = 0
    error: Exception | None = None
    stalled: OSError | None = None


class MemoryStore:
    """Takes the place of `Store`; what each member does is said there."""

    def __init__(self, config: StoreConfig | None = None) -> None:
        self.config = config or StoreConfig()
        self.is_new = True
        self.directory: Path | None = None
        self.token = ""
        self.snapshot: bytes | None = None
        self.recovered_to = (Path(), 0)
        self.journal = MemoryJournal()
        self.compactor = MemoryCompactor()
        self.room: Room | None = None
        self.behind = False
        self.wants_rotation = False
        self.is_worth_rotating = False
        self.journal_changes = 0
        self._logs: dict[PartitionKey, MemoryLog] = {}
        self._owner: Owner
        self._schedule: Schedule

    def frames(self) -> Iterator[bytes]:
        return iter(())

    def count_batched(self, messages: int) -> None:
        """There is no journal that would grow."""

    def keep_topics(self, ids: set[int]) -> None:
        for topic_id in {topic_id for topic_id, _ in self._logs} - ids:
            self.delete_topic(topic_id)

    def open(self, owner: Owner, schedule: Schedule) -> list[TornTail]:
        self._owner = owner
        self._schedule = schedule
        return []

    def open_log(self, topic_id: int, topic: str, partition: int) -> MemoryLog:
        log = self._logs[topic_id, partition] = MemoryLog()
        return log

    def log(self, topic_id: int, partition: int) -> MemoryLog:
        return self._logs[topic_id, partition]

    def expired(
        self, topic_id: int, partition: int, *, before_ms: int | None, up_to_bytes: int, below_index: int
    ) -> tuple[int, int, int] | None:
        return self._logs[topic_id, partition].expired(before_ms, up_to_bytes, below_index)

    def drop_below(self, topic_id: int, partition: int, first_index: int) -> None:
        self._logs[topic_id, partition].drop_below(first_index)

    def trim(self, topic_id: int, partition: int, first_index: int) -> None:
        self.drop_below(topic_id, partition, first_index)

    def delete_topic(self, topic_id: int) -> None:
        for key in [key for key in self._logs if key[0] == topic_id]:
            del self._logs[key]

    def submit(self, changes: list[bytes], token: object, *, sync: bool, batched: int = 0) -> None:
        # In a turn of its own, as from a disk: whoever submits has not finished with the batch yet.
        self._schedule(self._owner.durable, [token])

    def rotate(self, snapshot: bytes) -> None:
        """There is no journal that would grow."""

    def close(self) -> None:
        """There is nothing to write and no directory to let go of."""
