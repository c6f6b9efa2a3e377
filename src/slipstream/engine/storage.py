"""What the engine asks of a store: `Store` keeps a data directory, `MemoryStore` keeps nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from slipstream.broker import PartitionLog
from slipstream.store import LogSlice, Owner, Room, Schedule, SegmentInfo, StoreConfig, TornTail


class SliceableLog(PartitionLog, Protocol):
    """A partition's records, also for a thread other than the broker's."""

    @property
    def segments(self) -> Sequence[SegmentInfo]:
        """The files that hold its older records, in order; replaced when they change, never changed."""
        ...

    def slice(self, first_index: int, end_index: int, limit_bytes: int) -> LogSlice: ...


class JournalGauge(Protocol):
    @property
    def sync_count(self) -> int: ...

    @property
    def sync_seconds(self) -> float: ...


class CompactorGauge(Protocol):
    @property
    def backlog(self) -> int: ...

    @property
    def error(self) -> Exception | None: ...

    @property
    def stalled(self) -> OSError | None: ...


class Storage(Protocol):
    """Used from the broker's thread; what each member does is said in `Store`."""

    @property
    def config(self) -> StoreConfig: ...

    @property
    def is_new(self) -> bool: ...

    @property
    def directory(self) -> Path | None:
        """None where nothing is on disk."""
        ...

    @property
    def token(self) -> str: ...

    @property
    def journal(self) -> JournalGauge: ...

    @property
    def compactor(self) -> CompactorGauge: ...

    @property
    def room(self) -> Room | None:
        """None where nothing is on disk."""
        ...

    # Recovery, in this order: snapshot, frames, keep_topics, open.

    @property
    def snapshot(self) -> bytes | None: ...

    def frames(self) -> Iterator[bytes]: ...

    @property
    def recovered_to(self) -> tuple[Path, int]: ...

    def count_batched(self, messages: int) -> None: ...

    def keep_topics(self, ids: set[int]) -> None: ...

    def open(self, owner: Owner, schedule: Schedule) -> list[TornTail]: ...

    # Logs

    def open_log(self, topic_id: int, topic: str, partition: int) -> SliceableLog: ...

    def log(self, topic_id: int, partition: int) -> SliceableLog: ...

    def expired(
        self, topic_id: int, partition: int, *, before_ms: int | None, up_to_bytes: int, below_index: int
    ) -> tuple[int, int, int] | None: ...

    def drop_below(self, topic_id: int, partition: int, first_index: int) -> None: ...

    def trim(self, topic_id: int, partition: int, first_index: int) -> None: ...

    def delete_topic(self, topic_id: int) -> None: ...

    # Writing

    @property
    def behind(self) -> bool: ...

    def submit(self, changes: list[bytes], token: object, *, sync: bool, batched: int = 0) -> None: ...

    @property
    def wants_rotation(self) -> bool: ...

    @property
    def is_worth_rotating(self) -> bool: ...

    @property
    def journal_changes(self) -> int: ...

    def rotate(self, snapshot: bytes) -> None: ...

    def close(self) -> None: ...
