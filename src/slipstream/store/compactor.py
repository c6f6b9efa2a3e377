"""The compactor: turns closed journal files into segments and checkpoints, behind the broker's back."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from slipstream.record import Record
from slipstream.store.checkpoint import Checkpoint, SegmentInfo, checkpoint_path, write_checkpoint
from slipstream.store.damage import Damaged
from slipstream.store.disk import Disk
from slipstream.store.journal import journal_numbers, journal_path
from slipstream.store.log import Chunk, StoredLog
from slipstream.store.segment import check_segment, read_segment, write_segment

log = logging.getLogger(__name__)

MERGE_BELOW_BYTES = 1 << 20
"""A segment smaller than this is merged with what comes after it, so that quiet topics do not litter the disk …"""
MERGE_BELOW_COUNT = 50_000
"""… unless it has this many messages: tiny ones would have it written again and again …"""
MERGE_SPAN_MS = 6 * 3600 * 1000
"""… or reaches this far back: retention goes by a segment's newest message, so an old one must stop growing."""

PartitionKey: TypeAlias = tuple[int, int]
Adopt: TypeAlias = Callable[[StoredLog, Chunk, list[SegmentInfo]], object]


class Compaction:
    """Everything the journal held before file `sequence`: the state then, and the records that became due."""

    __slots__ = ("chunks", "sequence", "snapshot")

    def __init__(self, snapshot: bytes, chunks: list[tuple[StoredLog, Chunk]]) -> None:
        self.sequence = 0
        self.snapshot = snapshot
        self.chunks = chunks


class _Trim:
    __slots__ = ("first_index", "key")

    def __init__(self, key: PartitionKey, first_index: int) -> None:
        self.key = key
        self.first_index = first_index


class Compactor:
    """Owns the catalogue of segments; the logs hold copies of their part of it."""

    def __init__(
        self,
        directory: Path,
        disk: Disk,
        catalogue: dict[PartitionKey, list[SegmentInfo]],
        checkpoints: list[int],
        adopt: Adopt,
        superseded: list[Path] | None = None,
    ) -> None:
        self.directory = directory
        self.disk = disk
        self.catalogue = catalogue
        self.error: Exception | None = None
        self._checkpoints = checkpoints
        self._adopt = adopt
        self._queue: queue.SimpleQueue[Compaction | _Trim | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="slipstream-compactor", daemon=True)
        self._end_bytes: dict[PartitionKey, int] = {}
        """Payload bytes ever written to a partition up to the end of its last segment."""
        self._superseded = superseded or []
        """Merged into a newer segment; the checkpoint before the last still names them."""
        self._pending = 0
        self._idle = threading.Condition()

    def start(self) -> None:
        self._thread.start()

    @property
    def backlog(self) -> int:
        """How many journal files wait to be compacted."""
        return self._pending

    def announce(self) -> None:
        """A journal file is being closed and will be handed to `compact`."""
        with self._idle:
            self._pending += 1

    def compact(self, compaction: Compaction) -> None:
        self._queue.put(compaction)

    def trim(self, topic_id: int, partition: int, first_index: int) -> None:
        """Removes the segments below `first_index`; the journal already says so."""
        self._queue.put(_Trim((topic_id, partition), first_index))

    def wait_idle(self, timeout_s: float) -> bool:
        with self._idle:
            return self._idle.wait_for(lambda: self._pending == 0 or self.error is not None, timeout_s)

    def close(self) -> None:
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            try:
                self._handle(item)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is reported, and the journal keeps the data
                self.error = error
                log.critical("compaction failed; journal files stay on disk until the next start: %s", error)
                with self._idle:
                    self._idle.notify_all()
                return

    def _handle(self, item: Compaction | _Trim) -> None:
        if isinstance(item, Compaction):
            self._compact(item)
            with self._idle:
                self._pending -= 1
                self._idle.notify_all()
        else:
            kept = [s for s in self.catalogue.get(item.key, []) if s.end_index > item.first_index]
            gone = [s for s in self.catalogue.get(item.key, []) if s.end_index <= item.first_index]
            self.catalogue[item.key] = kept
            for segment in gone:
                self.disk.remove(self.directory / segment.path)

    def _compact(self, compaction: Compaction) -> None:
        superseded, self._superseded = self._superseded, []
        adopted = [(stored, chunk, self._write(stored, chunk)) for stored, chunk in compaction.chunks]
        segments = [segment for part in self.catalogue.values() for segment in part]
        checkpoint = Checkpoint(compaction.sequence, compaction.snapshot, segments)
        write_checkpoint(self.directory, checkpoint, self.disk)
        for stored, chunk, part in adopted:
            self._adopt(stored, chunk, part)
        self._forget_before(compaction.sequence)
        for path in superseded:
            self.disk.remove(path)

    def _write(self, stored: StoredLog, chunk: Chunk) -> list[SegmentInfo]:
        key = (stored.topic_id, stored.partition)
        start_bytes = self._end_bytes.get(key, stored.start_bytes)
        before = self.catalogue.get(key, [])
        records, first_index = chunk.records, chunk.first_index
        merged = self._read_mergeable(before[-1], chunk) if before else None
        if merged is not None:
            records = merged + records
            first_index = before[-1].first_index
            start_bytes -= before[-1].payload_bytes
            self._superseded.append(self.directory / before[-1].path)
            before = before[:-1]
        segment = write_segment(
            self.directory,
            self.disk,
            topic_id=stored.topic_id,
            topic=stored.topic,
            partition=stored.partition,
            first_index=first_index,
            start_bytes=start_bytes,
            records=records,
        )
        self.catalogue[key] = [*before, segment]
        self._end_bytes[key] = segment.end_bytes
        return self.catalogue[key]

    def _read_mergeable(self, segment: SegmentInfo, chunk: Chunk) -> list[Record] | None:
        """The records of a segment that should become one with `chunk`."""
        if (
            segment.end_index != chunk.first_index
            or segment.payload_bytes >= MERGE_BELOW_BYTES
            or segment.count >= MERGE_BELOW_COUNT
        ):
            return None
        try:
            # Unchecked, damage would be given a new and valid checksum.
            check_segment(self.directory, segment)
        except Damaged as damage:
            log.error("not merging: %s", damage)  # noqa: TRY400 - the message says it all
            return None
        records = read_segment(self.directory, segment)
        return records if chunk.records[-1].timestamp_ms - records[0].timestamp_ms <= MERGE_SPAN_MS else None

    def _forget_before(self, sequence: int) -> None:
        """Keeps the checkpoint before this one, and its journal: with them a damaged checkpoint can be repaired."""
        self._checkpoints.append(sequence)
        while len(self._checkpoints) > 2:
            self.disk.remove(checkpoint_path(self.directory, self._checkpoints.pop(0)))
        oldest = self._checkpoints[0] if len(self._checkpoints) > 1 else 1
        for number in journal_numbers(self.directory):
            if number < oldest:
                self.disk.remove(journal_path(self.directory, number))
