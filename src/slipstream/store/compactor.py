"""The compactor: turns closed journal files into segments and checkpoints, behind the broker's back."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias, TypeVar

from slipstream.store.builder import Builder, SegmentOrder
from slipstream.store.checkpoint import Checkpoint, SegmentInfo, checkpoint_path, write_checkpoint
from slipstream.store.disk import Disk, is_no_room
from slipstream.store.journal import journal_numbers, journal_path
from slipstream.store.log import Chunk, StoredLog
from slipstream.store.segment import topic_directories

log = logging.getLogger(__name__)

DISCARD_RECORDS = 256
DISCARD_PAUSE_S = 0.001
"""Giving back the memory of 200,000 records in one go stops the broker for 25 to 30 ms: do it in slices."""

RETRY_S = 5.0
"""How often a compaction is repeated for which there was no room, in seconds. It writes whole segments."""

ResultT = TypeVar("ResultT")
PartitionKey: TypeAlias = tuple[int, int]
Adopt: TypeAlias = Callable[[StoredLog, Chunk, list[SegmentInfo]], object]
_Item: TypeAlias = "Compaction | _Trim | _Delete | Chunk"


class Compaction:
    """Everything the journal held before file `sequence`: the state then, and the records that became due."""

    __slots__ = ("chunks", "sequence", "snapshot")

    def __init__(self, snapshot: bytes, chunks: list[tuple[StoredLog, Chunk]]) -> None:
        self.sequence = 0
        self.snapshot = snapshot
        self.chunks = chunks


class _Closed(Exception):
    """The compactor was closed while it waited for room."""


class _Trim:
    __slots__ = ("first_index", "key")

    def __init__(self, key: PartitionKey, first_index: int) -> None:
        self.key = key
        self.first_index = first_index


class _Delete:
    __slots__ = ("topic_id",)

    def __init__(self, topic_id: int) -> None:
        self.topic_id = topic_id


class Compactor:
    """Owns the catalogue of segments; the logs hold copies of their part of it."""

    def __init__(
        self,
        directory: Path,
        disk: Disk,
        catalogue: dict[PartitionKey, list[SegmentInfo]],
        checkpoints: list[int],
        adopt: Adopt,
        builder: Builder,
        superseded: list[Path] | None = None,
    ) -> None:
        self.directory = directory
        self.disk = disk
        self.catalogue = catalogue
        self.error: Exception | None = None
        self.stalled: OSError | None = None
        """Why the compaction under way waits for room."""
        self._closing = threading.Event()
        self._held: deque[_Item | None] = deque()
        """Items that were taken from the queue while a compaction waited for room, oldest first."""
        self._checkpoints = checkpoints
        self._adopt = adopt
        self._builder = builder
        self._queue: queue.SimpleQueue[_Item | None] = queue.SimpleQueue()
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

    def delete_topic(self, topic_id: int) -> None:
        """Removes all segments of a topic; the journal already says that it is gone."""
        self._queue.put(_Delete(topic_id))

    def discard(self, chunk: Chunk) -> None:
        """Nobody reads this chunk any more."""
        self._queue.put(chunk)

    def wait_idle(self, timeout_s: float) -> bool:
        with self._idle:
            return self._idle.wait_for(lambda: self._pending == 0 or self.error is not None, timeout_s)

    def close(self) -> None:
        self._closing.set()
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()
        self._builder.close()

    def _run(self) -> None:
        while (item := self._next()) is not None:
            try:
                self._handle(item)
            except _Closed:
                return  # the journal keeps what was to be compacted
            except Exception as error:  # noqa: BLE001 - whatever it is, it is reported, and the journal keeps the data
                self.error = error
                log.critical("compaction failed; journal files stay on disk until the next start: %s", error)
                with self._idle:
                    self._idle.notify_all()
                return

    def _next(self) -> _Item | None:
        return self._held.popleft() if self._held else self._queue.get()

    def _handle(self, item: _Item) -> None:
        if isinstance(item, Compaction):
            self._compact(item)
            with self._idle:
                self._pending -= 1
                self._idle.notify_all()
        elif isinstance(item, Chunk):
            while item.records:
                del item.records[-DISCARD_RECORDS:]
                time.sleep(DISCARD_PAUSE_S)
        elif isinstance(item, _Delete):
            self._delete(item.topic_id)
        else:
            self._trim(item)

    def _trim(self, item: _Trim) -> None:
        kept = [s for s in self.catalogue.get(item.key, []) if s.end_index > item.first_index]
        gone = [s for s in self.catalogue.get(item.key, []) if s.end_index <= item.first_index]
        self.catalogue[item.key] = kept
        for segment in gone:
            self.disk.remove(self.directory / segment.path)

    def _delete(self, topic_id: int) -> None:
        """The checkpoints still name these files. Recovery finds in the journal behind them that nobody needs them."""
        for key in [key for key in self.catalogue if key[0] == topic_id]:
            del self.catalogue[key]
            self._end_bytes.pop(key, None)
        path = topic_directories(self.directory).get(topic_id)
        if path is not None:
            self._superseded = [file for file in self._superseded if path not in file.parents]
            self.disk.remove_tree(path)

    def _compact(self, compaction: Compaction) -> None:
        superseded, self._superseded = self._superseded, []
        first = self._checkpoints[-1] if self._checkpoints else 1

        def build() -> tuple[list[SegmentOrder], list[SegmentInfo]]:
            # Ordered anew each time: a segment to be merged may have been trimmed meanwhile.
            orders = [self._order(stored, chunk) for stored, chunk in compaction.chunks]
            return orders, self._builder.build(self.directory, list(range(first, compaction.sequence)), orders)

        orders, built = self._with_room(build, compaction)
        for order, segment in zip(orders, built, strict=True):
            self._enter(order, segment)

        def write() -> None:
            segments = [segment for part in self.catalogue.values() for segment in part]
            write_checkpoint(self.directory, Checkpoint(compaction.sequence, compaction.snapshot, segments), self.disk)

        self._with_room(write, compaction)
        for stored, chunk in compaction.chunks:
            self._adopt(stored, chunk, self.catalogue[stored.topic_id, stored.partition])
        self._forget_before(compaction.sequence)
        for path in superseded:
            self.disk.remove(path)

    def _with_room(self, write: Callable[[], ResultT], compaction: Compaction) -> ResultT:
        """Repeat a write of this compaction until there is room for it. The journal holds everything meanwhile.

        Raises _Closed when the compactor is closed before that.
        """
        while True:
            try:
                result = write()
            except OSError as error:
                if not is_no_room(error):
                    raise
                if self.stalled is None:
                    log.critical("no room for a compaction: %s; it is done when there is room again", error)
                self.stalled = error
                if self._closing.wait(RETRY_S):
                    raise _Closed from error
                self._free_room(compaction)
            else:
                if self.stalled is not None:
                    log.info("there is room for compactions again")
                    self.stalled = None
                return result

    def _free_room(self, stalled: Compaction) -> None:
        """Do the work in the queue that makes room, and hold the rest until the stalled compaction has ended."""
        while True:
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                return
            if isinstance(item, _Trim | Chunk):
                self._handle(item)
            elif isinstance(item, _Delete):
                self._drop_chunks(item.topic_id, stalled)
                self._delete(item.topic_id)
            else:
                self._held.append(item)
                if item is None:
                    return

    def _drop_chunks(self, topic_id: int, stalled: Compaction) -> None:
        """Take a deleted topic out of the compactions that have not ended, so that none writes segments of it."""
        for compaction in (stalled, *self._held):
            if isinstance(compaction, Compaction):
                dropped = [chunk for stored, chunk in compaction.chunks if stored.topic_id == topic_id]
                compaction.chunks = [each for each in compaction.chunks if each[0].topic_id != topic_id]
                for chunk in dropped:
                    self._handle(chunk)

    def _order(self, stored: StoredLog, chunk: Chunk) -> SegmentOrder:
        key = (stored.topic_id, stored.partition)
        before = self.catalogue.get(key, [])
        return SegmentOrder(
            topic_id=stored.topic_id,
            topic=stored.topic,
            partition=stored.partition,
            first_index=chunk.first_index,
            count=len(chunk.records),
            start_bytes=self._end_bytes.get(key, stored.start_bytes),
            before=before[-1] if before and before[-1].end_index == chunk.first_index else None,
        )

    def _enter(self, order: SegmentOrder, segment: SegmentInfo) -> None:
        """Put a new segment into the catalogue. It may have been merged with the one before it."""
        key = (segment.topic_id, segment.partition)
        kept = self.catalogue.get(key, [])
        if order.before is not None and segment.first_index < order.first_index:
            self._superseded.append(self.directory / order.before.path)
            kept = kept[:-1]
        self.catalogue[key] = [*kept, segment]
        self._end_bytes[key] = segment.end_bytes

    def _forget_before(self, sequence: int) -> None:
        """Keeps the checkpoint before this one, and its journal: with them a damaged checkpoint can be repaired."""
        self._checkpoints.append(sequence)
        while len(self._checkpoints) > 2:
            self.disk.remove(checkpoint_path(self.directory, self._checkpoints.pop(0)))
        oldest = self._checkpoints[0] if len(self._checkpoints) > 1 else 1
        for number in journal_numbers(self.directory):
            if number < oldest:
                self.disk.remove(journal_path(self.directory, number))
