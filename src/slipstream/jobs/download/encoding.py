"""Undoes the Content-Encoding of a body, a bounded piece at a time, and gives up on what grows without measure."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from slipstream.jobs.failure import Code, TaskFailed

PIECE_BYTES = 64 * 1024
"""The most that is produced at once, whatever a few bytes claim to become."""
RATIO_FROM_BYTES = 1 << 20
"""Below, the ratio says nothing: a page of blanks is no attack."""

_GZIP = 16 + zlib.MAX_WBITS
_ZLIB = zlib.MAX_WBITS
_RAW = -zlib.MAX_WBITS


class Decoder:
    """Of one body.

    Example:
        decoder = decoder_for("gzip", max_bytes=1 << 30, max_ratio=100)
        for piece in decoder.decode(chunk):
            ...
        decoder.finish()  # raises where the end is missing
    """

    def __init__(self, encoding: str, *, max_bytes: int, max_ratio: int) -> None:
        assert encoding in ("gzip", "deflate"), encoding
        self._is_gzip = encoding == "gzip"
        self._max_bytes = max_bytes
        self._max_ratio = max_ratio
        self._stream: zlib._Decompress | None = None
        self._head = b""
        """Of a deflate stream whose kind is not known yet."""
        self._is_done = False
        """A stream has come to its end, and what comes now, if anything, is another."""
        self.size_in = 0
        self.size_out = 0

    def decode(self, data: bytes) -> Iterator[bytes]:
        """What this becomes, in pieces of PIECE_BYTES at most. Raises TaskFailed."""
        self.size_in += len(data)
        while data:
            if self._is_done:
                data = self._after_end(data)
            if self._stream is None:
                data = self._begin(data)
            if self._stream is None or not data:
                return
            yield from self._inflate(self._stream, data)
            data = self._stream.unused_data
            if self._stream.eof:
                self._stream, self._is_done = None, True

    def finish(self) -> None:
        """Raises TaskFailed if the body ended too early. An empty one is empty, as servers send it for empty files."""
        if self.size_in and not self._is_done:
            raise _damaged("its end is missing")

    def _begin(self, data: bytes) -> bytes:
        """Opens the stream that starts here. Two formats go by the name of deflate, with a header and without: the
        standard says one thing, and some servers send the other."""
        if self._is_gzip:
            self._stream = zlib.decompressobj(_GZIP)
            return data
        head = self._head + data
        if len(head) < 2:
            self._head = head
            return b""
        has_header = head[0] & 0x0F == 8 and int.from_bytes(head[:2], "big") % 31 == 0
        self._stream = zlib.decompressobj(_ZLIB if has_header else _RAW)
        self._head = b""
        return head

    def _after_end(self, data: bytes) -> bytes:
        """Another member of a gzip file, or zeros that fill up a block of a tape, as gzip itself takes them."""
        data = data.lstrip(b"\0")
        if data and not self._is_gzip:
            raise _damaged("there is more after its end")
        if data:
            self._is_done = False
        return data

    def _inflate(self, stream: zlib._Decompress, data: bytes) -> Iterator[bytes]:
        while not stream.eof:
            try:
                piece = stream.decompress(data, PIECE_BYTES)
            except zlib.error as error:
                raise _damaged(str(error)) from None
            data = stream.unconsumed_tail
            if piece:
                self._count(len(piece))
                yield piece
            if not data and len(piece) < PIECE_BYTES:  # a full piece may have left something behind inside
                return

    def _count(self, size: int) -> None:
        self.size_out += size
        if self.size_out > self._max_bytes:
            raise TaskFailed(
                Code.DOWNLOAD_TOO_LARGE, f"decompressed, it has more than {self._max_bytes} bytes (JOBS_MAX_BYTES)"
            )
        if self.size_out > RATIO_FROM_BYTES and self.size_out > self._max_ratio * self.size_in:
            raise TaskFailed(
                Code.DOWNLOAD_BOMB,
                f"{self.size_in} bytes became {self.size_out} by decompression, more than {self._max_ratio} times as "
                "many (JOBS_MAX_RATIO)",
            )


def decoder_for(content_encoding: str, *, max_bytes: int, max_ratio: int) -> Decoder | None:
    """None where nothing was encoded. Raises TaskFailed for what nobody here can decode."""
    match content_encoding.strip().lower():
        case "" | "identity":
            return None
        case "gzip" | "x-gzip":
            return Decoder("gzip", max_bytes=max_bytes, max_ratio=max_ratio)
        case "deflate":
            return Decoder("deflate", max_bytes=max_bytes, max_ratio=max_ratio)
    raise TaskFailed(
        Code.DOWNLOAD_ENCODING,
        f"the server sent it with Content-Encoding {content_encoding[:100]!r}, though it was not asked to; "
        "gzip and deflate are understood",
    )


def _damaged(why: str) -> TaskFailed:
    return TaskFailed(Code.DOWNLOAD_PROTOCOL, f"the compressed body is damaged: {why}", is_retryable=True)
