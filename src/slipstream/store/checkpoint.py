"""A checkpoint: the broker's snapshot and the list of segments, as of the start of one journal file."""

from __future__ import annotations

import struct
from pathlib import Path

import google_crc32c
import msgspec

from slipstream.store.damage import Damaged
from slipstream.store.disk import Disk

_MAGIC = b"SLIPCHK1"
_HEADER = struct.Struct("<8sQI")


class SegmentInfo(msgspec.Struct, array_like=True, frozen=True):
    """One segment file: which records of which partition it holds."""

    topic_id: int
    partition: int
    path: str
    """Relative to the data directory."""
    first_index: int
    count: int
    first_offset: int
    last_offset: int
    last_timestamp_ms: int
    payload_bytes: int
    """Key and value bytes, as retention counts them."""
    end_bytes: int
    """Key and value bytes ever written to the partition up to the end of this segment."""
    file_bytes: int
    crc: int
    pages: list[int]
    """The row each page (Arrow record batch) starts at."""

    @property
    def end_index(self) -> int:
        return self.first_index + self.count


class Checkpoint(msgspec.Struct, array_like=True, frozen=True):
    """Recovery starts here: restore `snapshot`, then replay the journal from file `sequence` on."""

    sequence: int
    snapshot: bytes
    segments: list[SegmentInfo]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Checkpoint).decode


def checkpoint_path(directory: Path, sequence: int) -> Path:
    return directory / f"checkpoint-{sequence:012d}"


def write_checkpoint(directory: Path, checkpoint: Checkpoint, disk: Disk) -> None:
    payload = _encode(checkpoint)
    header = _HEADER.pack(_MAGIC, len(payload), google_crc32c.value(payload))
    disk.replace_file(checkpoint_path(directory, checkpoint.sequence), [header, payload])


def read_checkpoint(path: Path) -> Checkpoint:
    data = path.read_bytes()
    if len(data) < _HEADER.size:
        raise Damaged(path, len(data), "the checkpoint is cut short")
    magic, length, crc = _HEADER.unpack_from(data)
    payload = data[_HEADER.size :]
    if magic != _MAGIC:
        raise Damaged(path, 0, "this is not a checkpoint")
    if len(payload) != length:
        raise Damaged(
            path, len(data), f"the checkpoint should have {length} bytes behind its header, not {len(payload)}"
        )
    if google_crc32c.value(payload) != crc:
        raise Damaged(path, _HEADER.size, "the checkpoint does not match its checksum")
    try:
        return _decode(payload)
    except msgspec.DecodeError as error:
        raise Damaged(path, _HEADER.size, f"the checkpoint cannot be read: {error}") from error


def checkpoint_numbers(directory: Path) -> list[int]:
    """The checkpoints there are, ascending."""
    names = (path.name.removeprefix("checkpoint-") for path in directory.glob("checkpoint-*"))
    return sorted(int(name) for name in names if name.isdigit())
