"""The body of a request: gzip or plain, and never more of it in memory than is allowed."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib
from collections.abc import AsyncIterator

import pytest
from starlette.requests import Request
from starlette.types import Message

from slipstream.jobs.api.body import read_body
from slipstream.jobs.refusal import RefusalCode, Refused
from tests.client.loop import in_loop

LIMIT = 100_000


def _request(data: bytes, encoding: str = "", piece: int = 1000) -> Request:
    async def pieces() -> AsyncIterator[Message]:
        for start in range(0, len(data), piece):
            yield {"type": "http.request", "body": data[start : start + piece], "more_body": True}
        yield {"type": "http.request", "body": b"", "more_body": False}

    source = pieces()
    headers = [(b"content-encoding", encoding.encode())] if encoding else []
    return Request({"type": "http", "method": "POST", "headers": headers}, lambda: anext(source))


@in_loop
async def test_plain_and_gzip_bodies_are_read_up_to_the_limit_and_no_further() -> None:
    data = b"x" * LIMIT
    for encoding, body in (
        ("", data),
        ("identity", data),
        ("gzip", gzip.compress(data)),
        ("GZIP", gzip.compress(data)),
    ):
        assert await read_body(_request(body, encoding), LIMIT) == data
    for encoding, body in (("", data + b"x"), ("gzip", gzip.compress(data + b"x"))):
        with pytest.raises(Refused, match=f"at most {LIMIT} bytes") as refused:
            await read_body(_request(body, encoding), LIMIT)
        assert refused.value.code == RefusalCode.PAYLOAD_TOO_LARGE


@in_loop
async def test_several_members_are_one_body() -> None:
    assert await read_body(_request(gzip.compress(b"one ") + gzip.compress(b"two"), "gzip"), LIMIT) == b"one two"


@in_loop
async def test_a_bomb_takes_no_memory() -> None:
    squeeze = zlib.compressobj(9, wbits=31)
    bomb = b"".join(squeeze.compress(bytes(1 << 20)) for _ in range(200)) + squeeze.flush()
    tracemalloc.start()
    try:
        with pytest.raises(Refused) as refused:
            await read_body(_request(bomb, "gzip", len(bomb)), 5 * LIMIT)
        assert refused.value.code == RefusalCode.PAYLOAD_TOO_LARGE
        assert tracemalloc.get_traced_memory()[1] < 10 * LIMIT + len(bomb) * 3
    finally:
        tracemalloc.stop()


@in_loop
async def test_more_members_than_anybody_needs_are_refused() -> None:
    """Each is 20 bytes of nothing: a quarter of a million of them fit into a body."""
    with pytest.raises(Refused, match="members") as refused:
        await read_body(_request(gzip.compress(b"") * 250_000, "gzip", 1 << 20), 5_000_000)
    assert refused.value.code == RefusalCode.INVALID_PAYLOAD


@pytest.mark.parametrize(
    ("encoding", "data", "message"),
    [
        ("gzip", b"{}", "no gzip"),
        ("gzip", gzip.compress(b"x" * 1000)[:-1], "ends before its end"),
        ("gzip", gzip.compress(b"x") + b"rest", "no gzip"),
        ("gzip", gzip.compress(b"x")[:-8] + b"\0" * 8, "no gzip"),
        ("br", b"{}", "send it as it is, or as gzip"),
        ("gzip, gzip", b"{}", "send it as it is, or as gzip"),
    ],
    ids=["plain", "cut", "with a rest", "of another sum", "brotli", "gzip of gzip"],
)
@in_loop
async def test_what_cannot_be_decompressed_is_refused(encoding: str, data: bytes, message: str) -> None:
    with pytest.raises(Refused, match=message) as refused:
        await read_body(_request(data, encoding), LIMIT)
    assert refused.value.code == RefusalCode.INVALID_PAYLOAD
