"""Segment files, read where they lie: on the machine of the server, or wherever its data directory can be seen."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path

import google_crc32c
import pyarrow as pa

from slipstream.api import SegmentFile, SegmentList

_OFFSET = 0
_CHECK_BYTES = 1 << 20
_IN_THIS_THREAD = pa.ipc.IpcReadOptions(use_threads=False)
"""Pages are small: to share one out to threads took three times as long as to read it."""

_checked: set[tuple[str, int, int]] = set()
"""Path, size and checksum of the files that this process has looked through. A file is never changed."""


class SegmentUnusable(Exception):
    """It was merged or removed meanwhile, or is not what was written. The server knows more."""


def sees_directory(listed: SegmentList) -> bool:
    """Whether the directory that is found here, if any, is that of the server that listed them."""
    if not listed.directory:
        return False
    try:
        lines = Path(listed.directory, "LOCK").read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return False
    return len(lines) > 1 and lines[1] == listed.token


def read_segment(directory: Path, segment: SegmentFile, start: int, end: int) -> Iterator[pa.RecordBatch]:
    """The rows with offsets from `start` and below `end`, in the pages of the file, which are small."""
    path = directory / segment.path
    try:
        # Opened first: what is open can be read to its end, even if the file is removed meanwhile.
        with pa.memory_map(str(path)) as file:
            _check(path, segment, file)
            reader = pa.ipc.open_file(file, options=_IN_THIS_THREAD)
            first = 0 if start <= segment.first_offset else _page_of(file, start)
            for page in range(first, reader.num_record_batches):
                batch = _within(reader.get_batch(page), start, end)
                if batch.num_rows:
                    yield batch
                elif page > first:
                    return
    except (OSError, pa.ArrowInvalid) as error:
        raise SegmentUnusable(f"{path}: {error}") from error


def _check(path: Path, segment: SegmentFile, file: pa.MemoryMappedFile) -> None:
    """Arrow files carry no checksum of their own, so each is looked through before its first page is believed."""
    name = (str(path), segment.file_bytes, segment.crc)
    if name in _checked:
        return
    if file.size() != segment.file_bytes:
        raise SegmentUnusable(f"{path} has {file.size()} bytes, and not {segment.file_bytes}")
    crc = 0
    while piece := file.read(_CHECK_BYTES):
        crc = google_crc32c.extend(crc, piece)
    if crc != segment.crc:
        raise SegmentUnusable(f"{path} does not match its checksum")
    file.seek(0)
    _checked.add(name)


def _page_of(file: pa.MemoryMappedFile, offset: int) -> int:
    """The page that has this offset, or the first one behind it: at most a few pages are looked into, and only at their
    offsets."""
    options = pa.ipc.IpcReadOptions(included_fields=[_OFFSET], use_threads=False)
    reader = pa.ipc.open_file(file, options=options)

    def last(page: int) -> int:
        found: int = reader.get_batch(page).column(0)[-1].as_py()
        return found

    return bisect_left(range(reader.num_record_batches), offset, key=last)


def _within(batch: pa.RecordBatch, start: int, end: int) -> pa.RecordBatch:
    column = batch.column(_OFFSET)
    offsets = memoryview(column.buffers()[1]).cast("q")[column.offset : column.offset + len(column)]
    if start <= offsets[0] and offsets[-1] < end:
        return batch
    first = bisect_left(offsets, start)
    return batch.slice(first, bisect_left(offsets, end) - first)
