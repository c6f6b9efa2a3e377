"""Decompression: of honest bodies, however they are cut, and of those that are meant to hurt."""

from __future__ import annotations

import gzip
import itertools
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.jobs.download.encoding import PIECE_BYTES, decoder_for
from slipstream.jobs.failure import Code, TaskFailed


def raw_deflate(data: bytes) -> bytes:
    squeeze = zlib.compressobj(wbits=-15)
    return squeeze.compress(data) + squeeze.flush()


def decoded(encoding: str, pieces: list[bytes], max_bytes: int = 1 << 40, max_ratio: int = 10_000) -> bytes:
    decoder = decoder_for(encoding, max_bytes=max_bytes, max_ratio=max_ratio)
    assert decoder is not None
    out = []
    for piece in pieces:
        for part in decoder.decode(piece):
            assert 0 < len(part) <= PIECE_BYTES
            out.append(part)
    decoder.finish()
    return b"".join(out)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[start:end] for start, end in itertools.pairwise(edges)]


@given(
    st.lists(st.binary(max_size=300), min_size=1, max_size=3),
    st.integers(1, 2000),
    st.lists(st.integers(0, 10_000), max_size=8),
)
def test_bodies_come_out_as_they_were_however_they_are_cut(parts: list[bytes], times: int, places: list[int]) -> None:
    data = b"".join(parts) * times
    assert decoded("gzip", cut(gzip.compress(data), places)) == data
    assert decoded("deflate", cut(zlib.compress(data), places)) == data
    assert decoded("deflate", cut(raw_deflate(data), places)) == data
    members = b"".join(gzip.compress(part) for part in parts)
    assert decoded("X-GZip", cut(members + b"\0\0\0", places)) == b"".join(parts)


@given(st.binary(min_size=1, max_size=300), st.integers(1, 400))
def test_a_body_without_its_end_is_damaged(data: bytes, missing: int) -> None:
    for encoding, whole in (("gzip", gzip.compress(data)), ("deflate", zlib.compress(data))):
        short = whole[: max(1, len(whole) - missing)]
        with pytest.raises(TaskFailed) as caught:
            decoded(encoding, [short])
        assert caught.value.code is Code.DOWNLOAD_PROTOCOL
        assert caught.value.is_retryable


@given(st.sampled_from(["gzip", "deflate"]), st.lists(st.binary(max_size=100), max_size=5))
def test_garbage_is_damaged_and_nothing_worse(encoding: str, pieces: list[bytes]) -> None:
    try:
        decoded(encoding, pieces)
    except TaskFailed as failure:
        assert failure.code is Code.DOWNLOAD_PROTOCOL


def test_a_flipped_byte_is_noticed() -> None:
    whole = bytearray(gzip.compress(bytes(range(256)) * 10))
    whole[-6] ^= 1  # of the checksum
    with pytest.raises(TaskFailed, match="damaged"):
        decoded("gzip", [bytes(whole)])


def test_what_follows_the_end_is_damage() -> None:
    for encoding, whole in (("gzip", gzip.compress(b"a") + b"more"), ("deflate", zlib.compress(b"a") + b"more")):
        with pytest.raises(TaskFailed, match="damaged"):
            decoded(encoding, [whole])


def test_an_empty_body_is_empty() -> None:
    assert decoded("gzip", []) == b""


def test_thousands_of_empty_members_are_nothing() -> None:
    whole = gzip.compress(b"") * 5000
    assert decoded("gzip", [whole[start : start + 16384] for start in range(0, len(whole), 16384)]) == b""


def test_a_bomb_is_given_up_long_before_it_has_gone_off() -> None:
    decoder = decoder_for("gzip", max_bytes=1 << 40, max_ratio=100)
    assert decoder is not None
    with pytest.raises(TaskFailed) as caught:
        list(decoder.decode(gzip.compress(bytes(50 << 20))))
    assert caught.value.code is Code.DOWNLOAD_BOMB
    assert not caught.value.is_retryable
    assert decoder.size_out < 6 << 20


def test_a_small_body_may_grow_as_it_likes() -> None:
    assert decoded("gzip", [gzip.compress(bytes(1 << 20))], max_ratio=1) == bytes(1 << 20)


def test_more_than_the_limit_is_too_large() -> None:
    with pytest.raises(TaskFailed) as caught:
        decoded("gzip", [gzip.compress(bytes(1001))], max_bytes=1000)
    assert caught.value.code is Code.DOWNLOAD_TOO_LARGE
    assert decoded("gzip", [gzip.compress(bytes(1000))], max_bytes=1000) == bytes(1000)


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip", "compress", "nonsense"])
def test_an_encoding_nobody_here_knows_is_refused(encoding: str) -> None:
    with pytest.raises(TaskFailed) as caught:
        decoder_for(encoding, max_bytes=1, max_ratio=1)
    assert caught.value.code is Code.DOWNLOAD_ENCODING


@pytest.mark.parametrize("encoding", ["", "identity", " Identity "])
def test_no_encoding_needs_no_decoder(encoding: str) -> None:
    assert decoder_for(encoding, max_bytes=1, max_ratio=1) is None
