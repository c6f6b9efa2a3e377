"""Frames: one commit each, with a checksum that no payload can forge.

    file   = header frame*
    header = "SLIPJRNL" version:u32 sequence:u64 salt:u64 previous_length:u64 crc:u32
    frame  = "SLFR" length:u32 crc:u32 version:u8 0 0 0 synced:u64 payload

Integers are little-endian, checksums CRC-32C. A frame's checksum starts from its file's random salt, so bytes that a
client sent, or that another file left on the disk, never pass for a frame of this file. `synced` is how much of the
file was known to be on disk when the frame was written. Both serve to tell a torn tail from damage: a disk that loses
power may keep a later frame and lose an earlier one, but only if neither had been synced.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import google_crc32c
import msgspec

from slipstream.store.damage import Damaged, TornTail

FILE_MAGIC = b"SLIPJRNL"
FRAME_MAGIC = b"SLFR"
VERSION = 1

_FILE_HEADER = struct.Struct("<8sIQQQ")
_CRC = struct.Struct("<I")
FILE_HEADER_SIZE = _FILE_HEADER.size + _CRC.size

_FRAME_HEADER = struct.Struct("<4sIIB3xQ")
FRAME_HEADER_SIZE = _FRAME_HEADER.size
FRAME_LENGTH_MAX = (1 << 32) - 1


class FileHeader(msgspec.Struct, frozen=True):
    """Which journal file this is, and how long the one before it was when it was closed."""

    sequence: int
    salt: int
    previous_length: int

    def encode(self) -> bytes:
        head = _FILE_HEADER.pack(FILE_MAGIC, VERSION, self.sequence, self.salt, self.previous_length)
        return head + _CRC.pack(google_crc32c.value(head))

    @classmethod
    def decode(cls, path: Path, data: bytes) -> FileHeader:
        head, crc = data[: _FILE_HEADER.size], data[_FILE_HEADER.size : FILE_HEADER_SIZE]
        if len(crc) < _CRC.size:
            raise Damaged(path, len(data), "the file header is cut short")
        if crc != _CRC.pack(google_crc32c.value(head)):
            raise Damaged(path, 0, "the file header does not match its checksum")
        magic, version, sequence, salt, previous_length = _FILE_HEADER.unpack(head)
        if magic != FILE_MAGIC or version != VERSION:
            raise Damaged(path, 0, f"not a journal of version {VERSION}; was it written by a newer slipstream?")
        return cls(sequence, salt, previous_length)

    @property
    def seed(self) -> int:
        """Where the checksums of this file's frames start from."""
        return int(google_crc32c.value(struct.pack("<QQ", self.salt, self.sequence)))


def guess_header(number: int, data: bytes) -> FileHeader | None:
    """The header of a file whose own does not check out: as it reads, or with one bit of the salt turned.

    A guess is believed if a frame of the file matches it.
    """
    if len(data) <= FILE_HEADER_SIZE:
        return None
    _, _, _, salt, previous_length = _FILE_HEADER.unpack_from(data)
    for candidate in (salt, *(salt ^ (1 << bit) for bit in range(64))):
        header = FileHeader(number, candidate, previous_length)
        if _frame_at(data, FILE_HEADER_SIZE, header.seed)[0] is not None:
            return header
    return None


def encode_frame(seed: int, payload: bytes, synced: int) -> bytes:
    """The header to write before `payload`."""
    length = len(payload)
    crc = google_crc32c.extend(google_crc32c.extend(seed, _prefix(length, synced)), payload)
    return _FRAME_HEADER.pack(FRAME_MAGIC, length, crc, VERSION, synced)


def _prefix(length: int, synced: int) -> bytes:
    return struct.pack("<IBQ", length, VERSION, synced)


class Frame(msgspec.Struct, frozen=True):
    position: int
    payload: bytes
    synced: int
    """The file was on disk up to here when this was written."""


class Gap(msgspec.Struct, frozen=True):
    """Bytes that are no frame, up to the next good frame or the end."""

    position: int
    length: int
    reason: str


def scan_frames(data: bytes, seed: int) -> Iterator[Frame | Gap]:
    """Everything behind the file header, good or bad, in order."""
    position = FILE_HEADER_SIZE
    while position < len(data):
        frame, reason = _frame_at(data, position, seed)
        if frame is not None:
            yield frame
            position += FRAME_HEADER_SIZE + len(frame.payload)
            continue
        behind = _next_good_frame(data, position + 1, seed)
        end = len(data) if behind is None else behind
        yield Gap(position, end - position, reason)
        position = end


def read_frames(path: Path, data: bytes, header: FileHeader, *, last: bool) -> Iterator[Frame | TornTail]:
    """The commits of a journal file, in order.

    In the last file a bad frame that was never known to be on disk is the trace of a crash: it comes as a TornTail at
    the end, with all that follows it. Everywhere else a bad frame is damage.
    """
    items = scan_frames(data, header.seed)
    for item in items:
        if isinstance(item, Frame):
            yield item
            continue
        if not last:
            raise Damaged(path, item.position, f"{item.reason}; a later journal file exists")
        for later in items:
            if isinstance(later, Frame) and later.synced > item.position:
                reason = f"{item.reason}; it was on disk when the commit at byte {later.position} was written"
                raise Damaged(path, item.position, reason)
        yield TornTail(path, item.position, len(data) - item.position, item.reason)


def find_torn_tail(path: Path, data: bytes, header: FileHeader) -> TornTail | None:
    """Where recovery would cut the last file, unless it is damaged."""
    try:
        return next((item for item in read_frames(path, data, header, last=True) if isinstance(item, TornTail)), None)
    except Damaged:
        return None


def _frame_at(data: bytes, position: int, seed: int) -> tuple[Frame | None, str]:
    if len(data) - position < FRAME_HEADER_SIZE:
        return None, "the frame header is cut short"
    magic, length, crc, version, synced = _FRAME_HEADER.unpack_from(data, position)
    if magic != FRAME_MAGIC or version != VERSION or data[position + 13 : position + 16] != b"\0\0\0":
        return None, "no frame starts here"
    start = position + FRAME_HEADER_SIZE
    if length > len(data) - start:
        return None, f"the frame says {length} bytes and the file has {len(data) - start}"
    payload = data[start : start + length]
    if google_crc32c.extend(google_crc32c.extend(seed, _prefix(length, synced)), payload) != crc:
        return None, "the frame does not match its checksum"
    return Frame(position, payload, synced), ""


def _next_good_frame(data: bytes, position: int, seed: int) -> int | None:
    while (position := data.find(FRAME_MAGIC, position)) >= 0:
        if _frame_at(data, position, seed)[0] is not None:
            return position
        position += 1
    return None
