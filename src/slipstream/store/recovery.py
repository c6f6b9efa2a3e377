"""Reading a data directory back: the newest checkpoint, then every commit behind it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from slipstream.store.checkpoint import Checkpoint, checkpoint_numbers, checkpoint_path, read_checkpoint
from slipstream.store.damage import Damaged, TornTail
from slipstream.store.frame import FILE_HEADER_SIZE, FileHeader, read_frames
from slipstream.store.journal import journal_numbers, journal_path


class JournalEnd(msgspec.Struct):
    """Where writing goes on after recovery."""

    header: FileHeader
    length: int


class Recovery:
    """One pass over a directory. Reads only; what is to be cut off is in `torn` when the frames are through."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.checkpoint_sequences = checkpoint_numbers(directory)
        self.checkpoint = self._read_checkpoint()
        self.end: JournalEnd | None = None
        self.torn: list[TornTail] = []
        self.at: tuple[Path, int] = (checkpoint_path(directory, 0), 0)
        """Where what `frames` gave last stands."""
        if self.checkpoint is not None:
            self.at = (checkpoint_path(directory, self.checkpoint.sequence), 0)

    def _read_checkpoint(self) -> Checkpoint | None:
        if not self.checkpoint_sequences:
            return None
        path = checkpoint_path(self.directory, self.checkpoint_sequences[-1])
        checkpoint = read_checkpoint(path)
        if checkpoint.sequence != self.checkpoint_sequences[-1]:
            raise Damaged(path, 0, f"the checkpoint says it is number {checkpoint.sequence}")
        return checkpoint

    def frames(self) -> Iterator[bytes]:
        """Every commit since the checkpoint, oldest first."""
        numbers = self._numbers()
        length: int | None = None
        for number in numbers:
            path = journal_path(self.directory, number)
            data = path.read_bytes()
            last = number == numbers[-1]
            anchored = self.checkpoint is not None and number == self.checkpoint.sequence
            if last and not anchored and is_unstarted(data):
                self.torn.append(TornTail(path, 0, len(data), "the file header is cut short"))
                return
            header = FileHeader.decode(path, data)
            if header.sequence != number:
                raise Damaged(path, 0, f"the file says it is journal {header.sequence}")
            if length is not None and header.previous_length != length:
                before = journal_path(self.directory, number - 1)
                raise Damaged(before, length, f"it had {header.previous_length} bytes when it was closed")
            end = len(data)
            for item in read_frames(path, data, header, last=last):
                if isinstance(item, TornTail):
                    self.torn.append(item)
                    end = item.position
                else:
                    self.at = (path, item.position)
                    yield item.payload
            length = end
            self.end = JournalEnd(header, end)

    def _numbers(self) -> list[int]:
        """The journal files to replay: without a gap, from the checkpoint on."""
        numbers = journal_numbers(self.directory)
        first = self.checkpoint.sequence if self.checkpoint is not None else 1
        replay = [number for number in numbers if number >= first]
        if not replay:
            if numbers or self.checkpoint is not None:
                raise Damaged(journal_path(self.directory, first), 0, "the journal file is missing")
            segments = self.directory / "segments"
            if any(segments.glob("*/*/*.arrow")):
                # An empty broker would take them for left-overs and remove them (ruling 12).
                raise Damaged(segments, 0, "there are segments, and neither a checkpoint nor a journal that names them")
            return []
        for expected, number in enumerate(replay, start=first):
            if number != expected:
                path = journal_path(self.directory, expected)
                hint = "" if self.checkpoint else "; no checkpoint is there to start from"
                raise Damaged(path, 0, f"the journal file is missing, {number} follows{hint}")
        return replay


def is_unstarted(data: bytes) -> bool:
    """A crash while the file was being started: nothing can have been promised from it.

    Unless a checkpoint names the file: it was whole before the checkpoint was written, so there this is damage.
    """
    return len(data) < FILE_HEADER_SIZE or not data.strip(b"\0")
