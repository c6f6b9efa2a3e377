"""The doctor: says exactly what is wrong with a data directory, and what can be saved of it.

Every place recovery could start from is tried (each checkpoint, and the beginning of the journal where it still is),
and the one that loses least is what a repair keeps. So a damaged checkpoint costs nothing while the one before it is
there, and a damaged segment is built again as long as the journal files it came from are.
"""

from __future__ import annotations

import enum
import logging
import os
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol, TypeAlias

import msgspec
from msgspec.structs import replace

from slipstream.store.checkpoint import (
    Checkpoint,
    SegmentInfo,
    checkpoint_numbers,
    checkpoint_path,
    read_checkpoint,
    write_checkpoint,
)
from slipstream.store.compactor import PartitionKey
from slipstream.store.damage import Damaged
from slipstream.store.disk import Disk
from slipstream.store.frame import FileHeader, Frame, find_torn_tail, guess_header, scan_frames
from slipstream.store.journal import Durability, Journal, count_changes, journal_numbers, journal_path
from slipstream.store.lock import DirectoryLock
from slipstream.store.log import StoredLog
from slipstream.store.recovery import is_unstarted
from slipstream.store.segment import PageCache, check_segment, segment_path, write_segment

log = logging.getLogger(__name__)


class Severity(enum.StrEnum):
    NOTE = "note"
    """In a file the broker does not need."""
    TORN = "torn"
    """The trace of a crash: the broker cuts it off itself."""
    DAMAGE = "damage"
    """The broker does not start."""


class Finding(msgspec.Struct, frozen=True):
    severity: Severity
    path: str
    position: int
    reason: str


def _as_note(finding: Finding) -> Finding:
    reason = f"{finding.reason}; only the older checkpoint needs it, nothing is lost"
    return replace(finding, severity=Severity.NOTE, reason=reason)


class Loss(msgspec.Struct, frozen=True, kw_only=True):
    """Something that no repair brings back."""

    what: str
    topic: str = ""
    partition: int | None = None
    first_offset: int | None = None
    last_offset: int | None = None
    messages: int | None = None
    """How many, where that is known."""


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    topics: int = 0
    groups: int = 0
    messages: int = 0


class Salvage(Protocol):
    """The state, rebuilt by somebody who understands it: the store does not."""

    def restore(self, snapshot: bytes) -> None:
        """Raises ValueError if it cannot be applied."""
        ...

    def apply(self, frame: bytes) -> int:
        """Applies what can be; returns how many changes could not. Raises ValueError if it is no commit at all."""
        ...

    def lose(self, damaged: bytes) -> None: ...

    def cut(self, segment: SegmentInfo) -> Loss: ...

    def losses(self) -> list[Loss]: ...

    def first_index(self, topic_id: int, partition: int) -> int | None:
        """The oldest record that retention has left; None if the topic was deleted."""
        ...

    def contents(self) -> Contents: ...

    def snapshot(self) -> bytes: ...


NewSalvage: TypeAlias = Callable[[Callable[[int, str, int], StoredLog]], Salvage]


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    directory: str
    findings: list[Finding]
    plan: list[str]
    """What a repair would do."""
    losses: list[Loss]
    """What a repair would drop."""
    contents: Contents
    """What is there, or would be after a repair."""
    journals: int
    checkpoints: int
    segments: int
    repairable: bool

    @property
    def exit_code(self) -> int:
        severities = {finding.severity for finding in self.findings}
        return 2 if Severity.DAMAGE in severities else 1 if Severity.TORN in severities else 0


class CannotRepair(Exception):
    """And the directory is as it was."""


class Doctor:
    """Holds the directory's lock from `with` to the end."""

    def __init__(self, directory: Path, new_salvage: NewSalvage, disk: Disk | None = None) -> None:
        self.directory = directory
        self.disk = disk or Disk()
        self._new_salvage = new_salvage
        self._lock: DirectoryLock | None = None

    def __enter__(self) -> Doctor:
        if (self.directory / "LOCK").exists():
            self._lock = DirectoryLock(self.directory, announce=False)
        return self

    def __exit__(self, *_: object) -> None:
        if self._lock is not None:
            self._lock.release()

    def examine(self) -> Diagnosis:
        """Changes nothing."""
        return self._examine()[0]

    def repair(self) -> tuple[Diagnosis, Path]:
        """Copies the directory, then makes the broker start on it; returns what was wrong and the copy's place."""
        if self._lock is None:
            self._lock = DirectoryLock(self.directory)
        diagnosis, attempt = self._examine()
        if attempt is None or not diagnosis.exit_code:
            raise CannotRepair("; ".join(diagnosis.plan) or "there is nothing to repair")
        copy = _copy(self.directory)
        attempt.write(self.disk)
        return diagnosis, copy

    def _examine(self) -> tuple[Diagnosis, _Attempt | None]:
        directory = self.directory
        checkpoints, journals = checkpoint_numbers(directory), journal_numbers(directory)
        segments = _SegmentChecks(directory)
        findings: list[Finding] = []
        attempts: list[_Attempt] = []
        for base in [*reversed(checkpoints), 0]:
            if not base and journals[:1] != [1] and (checkpoints or journals or segments.any()):
                continue  # the journal does not go back to the beginning
            newest = base == (checkpoints[-1] if checkpoints else 0)
            try:
                attempt = _Attempt(directory, base, self._new_salvage, segments)
            except Damaged as damage:
                findings.append(_finding(Severity.DAMAGE if newest else Severity.NOTE, damage))
                continue
            known = {(finding.path, finding.position) for finding in findings}
            for finding in attempt.findings:
                if newest:
                    findings.append(finding)
                elif (finding.path, finding.position) not in known:
                    # If the newest checkpoint is bad, this one is needed, and so are its journal files.
                    needed = not attempts
                    findings.append(finding if needed else _as_note(finding))
            attempts.append(attempt)
        if not attempts and not findings:
            findings.append(_nothing_to_start_from(directory, journals))
        best = min(attempts, key=lambda attempt: attempt.cost) if attempts else None
        diagnosis = Diagnosis(
            directory=str(directory),
            findings=findings,
            plan=best.plan() if best is not None else [_NO_WAY],
            losses=best.losses if best is not None else [],
            contents=best.salvage.contents() if best is not None else Contents(),
            journals=len(journals),
            checkpoints=len(checkpoints),
            segments=len(segments.files()),
            repairable=best is not None,
        )
        return diagnosis, best


_NO_WAY = (
    "this cannot be repaired: no checkpoint can be read and the journal does not go back to the beginning. What is in "
    "segments/ are Arrow files (offset, timestamp_ms, key, value, meta) that any Arrow reader opens"
)


def _nothing_to_start_from(directory: Path, journals: list[int]) -> Finding:
    path = journal_path(directory, 1) if journals else directory / "segments"
    reason = "the journal file is missing, and no checkpoint is there to start from"
    return Finding(Severity.DAMAGE, str(path), 0, reason)


def _finding(severity: Severity, damage: Damaged) -> Finding:
    return Finding(severity, str(damage.path), damage.position, damage.reason)


class _SegmentChecks:
    """Each segment file is read once, however many checkpoints name it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._results: dict[tuple[str, int], Damaged | None] = {}

    def files(self) -> list[Path]:
        return list((self.directory / "segments").glob("*/*/*.arrow"))

    def any(self) -> bool:
        return bool(self.files())

    def damage(self, info: SegmentInfo) -> Damaged | None:
        key = (info.path, info.crc)
        if key not in self._results:
            try:
                check_segment(self.directory, info)
                self._results[key] = None
            except Damaged as damage:
                self._results[key] = damage
        return self._results[key]


class _Attempt:
    """Recovery from one place, kept going over whatever is damaged."""

    def __init__(self, directory: Path, base: int, new_salvage: NewSalvage, segments: _SegmentChecks) -> None:
        self.directory = directory
        self.base = base
        self.findings: list[Finding] = []
        self.losses: list[Loss] = []
        self.checkpoint = _read(directory, base) if base else Checkpoint(1, b"", [])
        self._catalogue: dict[PartitionKey, list[SegmentInfo]] = {}
        for segment in self.checkpoint.segments:
            self._catalogue.setdefault((segment.topic_id, segment.partition), []).append(segment)
        self._cache = PageCache(directory, 64)
        self._logs: dict[PartitionKey, StoredLog] = {}
        self._numbers = journal_numbers(directory)
        self._dropped: dict[PartitionKey, list[SegmentInfo]] = {}
        self._unknown = 0
        """Places where commits are missing: they cost something even when nobody can say what."""
        self.salvage = new_salvage(self._open_log)
        if base:
            try:
                self.salvage.restore(self.checkpoint.snapshot)
            except ValueError as error:
                raise Damaged(checkpoint_path(directory, base), 0, str(error)) from error
        self._replay()
        self.losses += self.salvage.losses()
        self._drop_segments(segments)

    @property
    def cost(self) -> tuple[int, int]:
        return sum(loss.messages or 0 for loss in self.losses), self._unknown

    def _open_log(self, topic_id: int, topic: str, partition: int) -> StoredLog:
        key = (topic_id, partition)
        stored = StoredLog(topic_id, topic, partition, list(self._catalogue.get(key, [])), self._cache)
        self._logs[key] = stored
        return stored

    # Reading

    def _replay(self) -> None:
        first = self.checkpoint.sequence
        numbers = [number for number in self._numbers if number >= first]
        if not numbers and not self.base:
            return
        length: int | None = None
        for number in range(first, max(numbers, default=first) + 1):
            path = journal_path(self.directory, number)
            if number not in numbers:
                self._lose(path, 0, "the journal file is missing: all its commits are lost", b"")
                length = None
                continue
            length = self._replay_file(number, path, length, last=number == numbers[-1])

    def _replay_file(self, number: int, path: Path, length_before: int | None, *, last: bool) -> int | None:
        """Returns how long the file is, or None where that says nothing."""
        data = path.read_bytes()
        if last and not (self.base and number == self.base) and is_unstarted(data):
            self.findings.append(Finding(Severity.TORN, str(path), 0, "the file header is cut short"))
            return None
        header = self._header(number, path, data)
        if header is None:
            return None
        if length_before is not None and header.previous_length != length_before:
            before = journal_path(self.directory, number - 1)
            reason = f"it had {header.previous_length} bytes when it was closed: the commits at its end are lost"
            self._lose(before, length_before, reason, b"")
        kept = changes = 0
        torn = find_torn_tail(path, data, header) if last else None
        for item in scan_frames(data, header.seed):
            if torn is not None and item.position >= torn.position:
                reason = f"{torn.reason}: {torn.length} bytes of an unfinished commit"
                self.findings.append(Finding(Severity.TORN, str(path), torn.position, reason))
                break
            if isinstance(item, Frame):
                self._apply(path, item)
                kept += 1
                changes += count_changes(item.payload)
            else:
                after = [other for other in scan_frames(data, header.seed) if other.position > item.position]
                good = [other for other in after if isinstance(other, Frame)]
                follow = f"{len(good)} good commits with {sum(count_changes(f.payload) for f in good)} changes follow"
                raw = data[item.position : item.position + item.length]
                self._lose(path, item.position, f"{item.reason}: {item.length} bytes are lost; {follow}", raw)
        return len(data)

    def _header(self, number: int, path: Path, data: bytes) -> FileHeader | None:
        try:
            header = FileHeader.decode(path, data)
            if header.sequence == number:
                return header
            damage = Damaged(path, 0, f"the file says it is journal {header.sequence}")
        except Damaged as error:
            damage = error
        guess = guess_header(number, data)
        if guess is None:
            self._lose(path, damage.position, f"{damage.reason}: without it none of its commits can be told", b"")
            return None
        self.findings.append(Finding(Severity.DAMAGE, str(path), damage.position, f"{damage.reason}; its commits can"))
        return guess

    def _apply(self, path: Path, frame: Frame) -> None:
        try:
            unusable = self.salvage.apply(frame.payload)
        except ValueError as error:
            self._lose(path, frame.position, str(error), b"")
            return
        if unusable and not self._unknown:
            reason = f"{unusable} changes of the commit do not fit what is before it"
            self._lose(path, frame.position, reason, b"")

    def _lose(self, path: Path, position: int, reason: str, raw: bytes) -> None:
        self.findings.append(Finding(Severity.DAMAGE, str(path), position, reason))
        self.salvage.lose(raw)
        self._unknown += 1

    def _drop_segments(self, segments: _SegmentChecks) -> None:
        for key, infos in self._catalogue.items():
            first_index = self.salvage.first_index(*key)
            # Of a deleted topic none is: the broker may have removed the files that this checkpoint still names.
            needed = [info for info in infos if first_index is not None and info.end_index > first_index]
            bad = [info for info in needed if segments.damage(info) is not None]
            self._catalogue[key] = needed
            self._dropped[key] = bad
            # From the end, so that what is left to cut still has the index it is known by.
            for info in reversed(bad):
                damage = segments.damage(info)
                assert damage is not None
                self.findings.append(_finding(Severity.DAMAGE, damage))
                self.losses.append(self.salvage.cut(info))

    def plan(self) -> list[str]:
        source = f"checkpoint {self.base}" if self.base else "the beginning of the journal"
        plan = [f"start from {source} and apply every good commit in the journal files behind it"]
        if any(self._dropped.values()):
            plan.append("take out the segments that are lost; later messages keep their offsets")
        plan.append("write what that gives as a new checkpoint, and remove the files it replaces")
        return plan

    # Writing

    def write(self, disk: Disk) -> None:
        """Everything new is on disk before the checkpoint that makes it count; only then the old goes."""
        directory = self.directory
        checkpoints = checkpoint_numbers(directory)
        sequence = max([*self._numbers, *checkpoints, 0]) + 1
        segments: list[SegmentInfo] = []
        for key, stored in self._logs.items():
            if self.salvage.first_index(*key) is not None:
                segments += self._write_log(disk, key, stored, f".r{sequence}")
        for path in directory.glob("*.tmp"):
            disk.remove(path)
        journal = Journal(directory, disk, Durability.ALWAYS, 0, lambda _: None, lambda _: None)
        journal.create(sequence)
        journal.close()
        write_checkpoint(directory, Checkpoint(sequence, self.salvage.snapshot(), segments), disk)
        for number in checkpoints:
            disk.remove(checkpoint_path(directory, number))
        for number in self._numbers:
            disk.remove(journal_path(directory, number))
        named = {segment.path for segment in segments}
        for path in (directory / "segments").glob("*/*/*"):
            if str(path.relative_to(directory)) not in named:
                disk.remove(path)
        disk.sync_directory(directory)

    def _write_log(self, disk: Disk, key: PartitionKey, stored: StoredLog, mark: str) -> list[SegmentInfo]:
        """A segment that moves down gets a new name: names come from indexes, and must not be taken twice."""
        kept: list[SegmentInfo] = []
        moved_count = moved_bytes = 0
        end_bytes = stored.start_bytes
        dropped = self._dropped.get(key, [])
        for info in self._catalogue.get(key, []):
            if info in dropped:
                moved_count += info.count
                moved_bytes += info.payload_bytes
                continue
            first_index, path = info.first_index - moved_count, info.path
            if moved_count:
                path = segment_path(stored.topic_id, stored.topic, stored.partition, first_index, info.count, mark)
                disk.replace_file(self.directory / path, [(self.directory / info.path).read_bytes()])
            end_bytes = info.end_bytes
            kept.append(replace(info, path=path, first_index=first_index, end_bytes=info.end_bytes - moved_bytes))
        if stored.tail.records:
            kept.append(
                write_segment(
                    self.directory,
                    disk,
                    topic_id=stored.topic_id,
                    topic=stored.topic,
                    partition=stored.partition,
                    first_index=stored.tail.first_index - moved_count,
                    start_bytes=end_bytes - moved_bytes,
                    records=stored.tail.records,
                    mark=mark,
                )
            )
        return kept


def _read(directory: Path, number: int) -> Checkpoint:
    path = checkpoint_path(directory, number)
    checkpoint = read_checkpoint(path)
    if checkpoint.sequence != number:
        raise Damaged(path, 0, f"the checkpoint says it is number {checkpoint.sequence}")
    return checkpoint


def _copy_path(directory: Path) -> Path:
    return directory.with_name(f"{directory.name}.before-repair-{datetime.now(UTC):%Y%m%dT%H%M%S}")


def _copy(directory: Path) -> Path:
    target = _copy_path(directory.absolute())
    if target.exists():
        raise CannotRepair(f"{target} is already there")
    size = sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
    free = shutil.disk_usage(target.parent).free
    if free < 2 * size:
        raise CannotRepair(f"a copy and the repair need {2 * size} bytes in {target.parent}, and {free} are free")
    shutil.copytree(directory, target)
    os.sync()
    return target
