"""The store: a data directory that takes changes, gives back logs, and survives."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import msgspec

from slipstream.store.build_process import ProcessBuilder
from slipstream.store.builder import LocalBuilder
from slipstream.store.checkpoint import SegmentInfo, checkpoint_path, read_checkpoint
from slipstream.store.compactor import Compaction, Compactor, PartitionKey
from slipstream.store.damage import Damaged, ForeignDirectory, TornTail
from slipstream.store.disk import Disk, NoRoom, system_disk
from slipstream.store.frame import FILE_HEADER_SIZE
from slipstream.store.journal import Durability, Journal, count_changes
from slipstream.store.lock import DirectoryLock, is_foreign
from slipstream.store.log import Chunk, StoredLog
from slipstream.store.recovery import Recovery
from slipstream.store.room import Room
from slipstream.store.segment import PageCache, describe, topic_directories

log = logging.getLogger(__name__)

IDLE_SHARE = 16


class StoreConfig(msgspec.Struct, frozen=True, kw_only=True):
    durability: Durability = Durability.ALWAYS
    sync_interval_ms: int = 100
    journal_bytes: int = 64 << 20
    """A journal file is closed and turned into segments at this size …"""
    journal_changes: int = 300_000
    """… or with this many changes, because recovery time grows with their number …"""
    journal_age_ms: int = 3600 * 1000
    """… or at this age, so that retention reaches the messages of a quiet topic too …"""
    journal_idle_ms: int = 2000
    """… or, with a sixteenth of that in it, when nothing has come for so long: whoever reads much of a log reads files
    several times as fast, and there is time to make them now."""
    compaction_backlog_max: int = 4
    """Closed journal files that may wait for compaction before producers have to."""
    journal_queue_bytes: int = 64 << 20
    """What may wait for the journal to be written; only with durability off does nobody wait for it."""
    compaction_process: bool = False
    """Compact in a process of its own, so that it does not compete with the broker for the interpreter."""
    disk_free_bytes: int = 256 << 20
    """Free space below which producers are refused: as much as the journals take that may wait for compaction, so that
    acks and compaction go on. At most a tenth of the volume; 0 for none."""
    page_cache_pages: int = 64
    verify_bytes: int = 256 << 20
    """Of the segments, at every start; the rest is checked when it is first read."""


class Schedule(Protocol):
    """Runs a function in the broker's thread, from any thread."""

    def __call__(self, function: Callable[..., object], /, *args: object) -> object: ...


class Owner(Protocol):
    """Who runs the broker: told in its own thread what has become of its commits."""

    def durable(self, tokens: list[object]) -> None: ...

    def journal_failed(self, error: OSError) -> None: ...

    def journal_stalled(self, error: OSError) -> None: ...

    def journal_resumed(self) -> None: ...

    def room_changed(self) -> None: ...


class _Scheduled:
    """Tells the owner in its own thread what keeps the journal from writing."""

    def __init__(self, owner: Owner, schedule: Schedule) -> None:
        self._owner = owner
        self._schedule = schedule

    def stalled(self, error: NoRoom) -> None:
        self._schedule(self._owner.journal_stalled, error)

    def resumed(self) -> None:
        self._schedule(self._owner.journal_resumed)

    def room_changed(self) -> None:
        self._schedule(self._owner.room_changed)


class Store:
    """One data directory, open. Everything but the two threads it starts is used from the broker's thread."""

    def __init__(self, directory: Path, config: StoreConfig, disk: Disk | None = None) -> None:
        self.directory = directory
        self.config = config
        self.disk = disk or system_disk()
        self.disk.make_directory(directory.absolute())
        if is_foreign(directory):
            raise ForeignDirectory(directory)
        self.is_new = not (directory / "LOCK").exists()
        self._lock = DirectoryLock(directory)
        self.token = self._lock.token
        """Stands in the LOCK of the directory: who finds it there sees the directory of this very process."""
        try:
            self.recovery = Recovery(directory)
        except BaseException:
            self._lock.release()
            raise
        self._catalogue: dict[PartitionKey, list[SegmentInfo]] = {}
        checkpoint = self.recovery.checkpoint
        for segment in checkpoint.segments if checkpoint is not None else []:
            self._catalogue.setdefault((segment.topic_id, segment.partition), []).append(segment)
        self._cache = PageCache(directory, config.page_cache_pages)
        self._logs: dict[PartitionKey, StoredLog] = {}
        self._deleted: set[int] = set()
        """Topics that recovery found deleted, and whose files may still be there."""
        self._journal_bytes = 0
        self._journal_changes = 0
        self.room = Room(self.disk, directory, config.disk_free_bytes)
        self.journal: Journal
        self.compactor: Compactor

    # Recovery, in this order: snapshot, frames, keep_topics, open.

    @property
    def snapshot(self) -> bytes | None:
        return self.recovery.checkpoint.snapshot if self.recovery.checkpoint is not None else None

    def frames(self) -> Iterator[bytes]:
        for frame in self.recovery.frames():
            self._journal_bytes += len(frame)
            self._journal_changes += count_changes(frame)
            yield frame

    def count_batched(self, messages: int) -> None:
        """So many messages in the last of `frames` share a change with one before them."""
        self._journal_changes += messages

    @property
    def recovered_to(self) -> tuple[Path, int]:
        """The file and the place in it of what `snapshot` or `frames` gave last."""
        return self.recovery.at

    def keep_topics(self, ids: set[int]) -> None:
        """All other topics are deleted: the checkpoint may name their segments, and the last run may have ended before
        or after it removed the files."""
        for key in [key for key in self._catalogue if key[0] not in ids]:
            del self._catalogue[key]
        for key in [key for key in self._logs if key[0] not in ids]:
            self._logs.pop(key).drop_all()
        self._deleted = set(topic_directories(self.directory)) - ids

    def open(self, owner: Owner, schedule: Schedule) -> list[TornTail]:
        """Starts writing behind what was recovered; returns what a crash left unfinished and was cut off."""
        self._check_segments()
        torn = self.recovery.torn
        for tail in torn:
            self._cut(tail)
        superseded = self._remove_orphans()
        self.journal = Journal(
            self.directory,
            self.disk,
            self.config.durability,
            self.config.sync_interval_ms,
            lambda tokens: schedule(owner.durable, tokens),
            lambda error: schedule(owner.journal_failed, error),
            _Scheduled(owner, schedule),
            self.room,
        )
        end = self.recovery.end
        if end is None:
            checkpoint = self.recovery.checkpoint
            self.journal.create(checkpoint.sequence if checkpoint is not None else 1)
        else:
            self.journal.reopen(end.header, end.length)
        self.compactor = Compactor(
            self.directory,
            self.disk,
            self._catalogue,
            self.recovery.checkpoint_sequences,
            lambda stored, chunk, segments: schedule(self._adopt, stored, chunk, segments),
            ProcessBuilder() if self.config.compaction_process else LocalBuilder(self.disk),
            superseded,
        )
        for stored in self._logs.values():
            # The journal says that these are given up; the last run may have ended before their files were removed.
            if stored.first_index:
                self.compactor.trim(stored.topic_id, stored.partition, stored.first_index)
        for topic_id in sorted(self._deleted):
            self.compactor.delete_topic(topic_id)
        self.journal.start()
        self.compactor.start()
        return torn

    def _check_segments(self) -> None:
        """Every segment the logs need is there, with the right length.

        Its bytes are checked too, as far as `verify_bytes` goes, newest first: all of them on most brokers, while one
        with a terabyte still starts in seconds. The others are checked when they are first read.
        """
        budget = self.config.verify_bytes
        for key, segments in self._catalogue.items():
            stored = self._logs.get(key)
            for segment in reversed(segments):
                if stored is not None and segment.end_index <= stored.first_index:
                    continue
                path = self.directory / segment.path
                size = path.stat().st_size if path.exists() else None
                if size is None:
                    raise Damaged(path, 0, f"the segment is missing; it holds {describe(segment)}")
                if size != segment.file_bytes:
                    raise Damaged(
                        path, size, f"the segment should have {segment.file_bytes} bytes; it holds {describe(segment)}"
                    )
                budget -= size
                if budget >= 0:
                    self._cache.check(segment)

    def _cut(self, tail: TornTail) -> None:
        """Keeps what is cut off beside the journal: it may tell someone what happened."""
        with tail.path.open("rb") as file:
            file.seek(tail.position)
            rest = file.read()
        if rest.strip(b"\0"):
            self.disk.replace_file(tail.path.with_name(f"{tail.path.name}.torn-{tail.position}"), [rest])
        if tail.position < FILE_HEADER_SIZE:
            self.disk.remove(tail.path)
            self.disk.sync_directory(self.directory)
        else:
            self.disk.truncate(tail.path, tail.position)
        log.warning("%s", tail)

    def _remove_orphans(self) -> list[Path]:
        """Removes what a compaction left that a crash cut short: segment files that neither checkpoint names.

        Returns those that only the older checkpoint names, which go when it does.
        """
        for path in self.directory.glob("checkpoint-*.tmp"):
            self.disk.remove(path)
        named = {segment.path for segments in self._catalogue.values() for segment in segments}
        files = {
            str(path.relative_to(self.directory))
            for topic_id, topic in topic_directories(self.directory).items()
            if topic_id not in self._deleted
            for path in topic.glob("*/*")
        }
        if files <= named:
            return []
        try:
            before = [read_checkpoint(checkpoint_path(self.directory, n)) for n in self.recovery.checkpoint_sequences]
        except Damaged as damage:
            log.warning("not looking for left-over segments: %s", damage)
            return []
        older = {segment.path for checkpoint in before for segment in checkpoint.segments} - named
        for name in files - named - older:
            log.info("removing %s, left over from an earlier run", name)
            self.disk.remove(self.directory / name)
        return [self.directory / name for name in sorted(files & older)]

    # Logs

    def open_log(self, topic_id: int, topic: str, partition: int) -> StoredLog:
        key = (topic_id, partition)
        stored = StoredLog(topic_id, topic, partition, list(self._catalogue.get(key, [])), self._cache)
        self._logs[key] = stored
        return stored

    def log(self, topic_id: int, partition: int) -> StoredLog:
        return self._logs[topic_id, partition]

    def expired(
        self,
        topic_id: int,
        partition: int,
        *,
        before_ms: int | None,
        up_to_bytes: int,
        below_index: int,
    ) -> tuple[int, int, int] | None:
        """Up to where whole segments are past their time, or end within the first `up_to_bytes` ever written.

        Returns (index, bytes before it, the lowest offset that may be left), or None.
        """
        stored = self._logs[topic_id, partition]
        end: SegmentInfo | None = None
        for segment in stored.segments:
            old = before_ms is not None and segment.last_timestamp_ms < before_ms
            # Messages may be empty: where nothing is too much, even a segment of no bytes is not.
            excess = 0 < up_to_bytes >= segment.end_bytes
            if segment.end_index > below_index or not (old or excess):
                break
            end = segment
        return (end.end_index, end.end_bytes, end.last_offset + 1) if end is not None else None

    def drop_below(self, topic_id: int, partition: int, first_index: int) -> None:
        """Recovery found that retention had given these up."""
        self._logs[topic_id, partition].drop_below(first_index)

    def trim(self, topic_id: int, partition: int, first_index: int) -> None:
        """Removes what retention gave up, once the change that says so, already submitted, is on disk."""
        self.drop_below(topic_id, partition, first_index)
        # "As safe as the durability promises" is not enough to remove files on.
        self.journal.barrier(lambda: self.compactor.trim(topic_id, partition, first_index))

    def delete_topic(self, topic_id: int) -> None:
        """Forgets a topic and removes its files, once the change that says so, already submitted, is on disk.

        A compaction that was asked for before this writes segments of it all the same; the compactor does one thing
        after the other, so they go with the rest.
        """
        for key in [key for key in self._logs if key[0] == topic_id]:
            self.compactor.discard(self._logs.pop(key).drop_all())
        self.journal.barrier(lambda: self.compactor.delete_topic(topic_id))

    def _adopt(self, stored: StoredLog, chunk: Chunk, segments: list[SegmentInfo]) -> None:
        stored.adopt(segments, chunk)
        self.compactor.discard(chunk)

    # Writing

    @property
    def behind(self) -> bool:
        """The disk cannot keep up, or compaction has failed: memory would grow without end if producers went on."""
        return (
            self.compactor.backlog > self.config.compaction_backlog_max
            or self.compactor.error is not None
            or self.journal.submitted_bytes - self.journal.written_bytes > self.config.journal_queue_bytes
        )

    def submit(self, changes: list[bytes], token: object, *, sync: bool, batched: int = 0) -> None:
        """`batched` messages share a change with one before them; recovery takes as long for each all the same."""
        before = self.journal.submitted_bytes
        self.journal.submit(changes, token, sync=sync)
        self._journal_bytes += self.journal.submitted_bytes - before
        self._journal_changes += len(changes) + batched

    @property
    def wants_rotation(self) -> bool:
        config = self.config
        full = self._journal_bytes >= config.journal_bytes or self._journal_changes >= config.journal_changes
        return full and not self.behind

    @property
    def is_worth_rotating(self) -> bool:
        """Whether there is enough in the journal for a rotation to pay, if there is time for it."""
        config = self.config
        enough = (
            self._journal_bytes >= config.journal_bytes // IDLE_SHARE
            or self._journal_changes >= config.journal_changes // IDLE_SHARE
        )
        return enough and self._journal_changes > 0 and not self.behind

    @property
    def journal_changes(self) -> int:
        """Changes since the last rotation."""
        return self._journal_changes

    def rotate(self, snapshot: bytes) -> None:
        """Closes the journal file; `snapshot` is the state with everything submitted so far, and nothing more."""
        chunks = []
        for stored in self._logs.values():
            chunk = stored.seal()
            if chunk is not None:
                chunks.append((stored, chunk))
        compaction = Compaction(snapshot, chunks)
        self.compactor.announce()

        def after(sequence: int) -> None:
            compaction.sequence = sequence
            self.compactor.compact(compaction)

        self.journal.rotate(after)
        self._journal_bytes = self._journal_changes = 0

    def close(self) -> None:
        """Writes what is left and lets go of the directory."""
        try:
            if hasattr(self, "journal"):
                self.journal.close()
            if hasattr(self, "compactor"):
                self.compactor.close()
        finally:
            self._lock.release()

    def announce_address(self, address: str) -> None:
        """Write the URL of the server that runs on the directory, for programs that look for it there."""
        self._lock.announce_address(address)
