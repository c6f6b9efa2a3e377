"""The body of a request, read and decompressed with an end to both."""

from __future__ import annotations

import zlib

from starlette.requests import Request

from slipstream.jobs.refusal import RefusalCode, Refused

GZIP = {"gzip", "x-gzip"}
SLICE_BYTES = 64 * 1024
MEMBERS_MAX = 1_000
"""Each takes time to begin, however little is in it: of empty ones there would be a quarter of a million."""


async def read_body(request: Request, max_bytes: int) -> bytes:
    """Raises Refused for what is too large, before it is in memory, and for what cannot be decompressed."""
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in {"identity", "", *GZIP}:
        raise Refused(RefusalCode.INVALID_PAYLOAD, f"Content-Encoding {encoding!r:.40}: send it as it is, or as gzip")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > max_bytes:
            raise _too_large(max_bytes)
    return _decompress(bytes(body), max_bytes) if encoding in GZIP else bytes(body)


def _decompress(data: bytes, max_bytes: int) -> bytes:
    """Never more than the limit and one byte, whatever it would become. Several members are one after the other."""
    whole = bytearray()
    member = zlib.decompressobj(wbits=31)
    members = 1
    try:
        # A slice at a time: what a member leaves over is copied, and of a whole body that would be megabytes for each.
        for start in range(0, len(data), SLICE_BYTES):
            piece = data[start : start + SLICE_BYTES]
            while piece:
                if member.eof:
                    member = zlib.decompressobj(wbits=31)
                    members += 1
                if members > MEMBERS_MAX:
                    raise Refused(
                        RefusalCode.INVALID_PAYLOAD,
                        f"the gzip body has more than {MEMBERS_MAX} members: send it as one",
                    )
                whole += member.decompress(piece, max_bytes + 1 - len(whole))
                if len(whole) > max_bytes:
                    raise _too_large(max_bytes)
                piece = member.unused_data
        if not member.eof:
            raise Refused(RefusalCode.INVALID_PAYLOAD, "the gzip body ends before its end: send all of it")
    except zlib.error as error:
        raise Refused(
            RefusalCode.INVALID_PAYLOAD, f"the body is no gzip, though Content-Encoding says so: {error}"
        ) from error
    return bytes(whole)


def _too_large(max_bytes: int) -> Refused:
    return Refused(
        RefusalCode.PAYLOAD_TOO_LARGE,
        f"at most {max_bytes} bytes are taken, after decompression (JOBS_MAX_MANIFEST_BYTES): send several requests",
    )
