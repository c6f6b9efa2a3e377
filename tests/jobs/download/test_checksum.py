"""Checksum hints, in all their spellings."""

from __future__ import annotations

import base64
import contextlib
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.jobs.download.checksum import SIZES, Checksum, parse_checksum


@pytest.mark.parametrize("algorithm", SIZES)
def test_every_spelling_means_the_same(algorithm: str) -> None:
    digest = hashlib.new(algorithm, b"data").digest()
    encoded = base64.b64encode(digest).decode()
    dashed = algorithm.replace("sha", "SHA-")
    for hint in (
        f"{algorithm}:{digest.hex()}",
        f" {algorithm.upper()}:{digest.hex().upper()} ",
        f"{algorithm}={digest.hex()}",
        f"{algorithm}-{encoded}",
        f"{algorithm}-{encoded.rstrip('=')}",
        f"{algorithm}:{base64.urlsafe_b64encode(digest).decode()}",
        f"{dashed}={encoded}",
        f"{dashed.lower()}=:{encoded}:",
        digest.hex(),
    ):
        assert parse_checksum(hint) == Checksum(algorithm, digest), hint


@pytest.mark.parametrize(
    "hint", ["", "sha256:", "sha256:abc", "sha384:00", "crc32:0", "abc", "sha256", "z" * 64, "sha256:!"]
)
def test_a_hint_nobody_understands_is_refused_with_the_reason(hint: str) -> None:
    with pytest.raises(ValueError, match=r"is no|has \d+ digits"):
        parse_checksum(hint)


def test_a_checksum_matches_its_bytes_only() -> None:
    checksum = parse_checksum("md5:" + hashlib.md5(b"a").hexdigest())
    assert checksum.matches(hashlib.md5(b"a").digest())
    assert not checksum.matches(hashlib.md5(b"b").digest())
    assert parse_checksum(str(checksum)) == checksum


@given(st.text(max_size=200))
def test_any_text_is_a_checksum_or_a_value_error(text: str) -> None:
    for hint in (text, f"sha256:{text}", f"md5={text}"):
        with contextlib.suppress(ValueError):
            assert len(parse_checksum(hint).digest) in SIZES.values()
