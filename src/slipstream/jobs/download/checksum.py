"""The checksum that a manifest promises of a resource, in the spellings that people use."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from hashlib import _Hash

SIZES = {"md5": 16, "sha1": 20, "sha256": 32, "sha512": 64}
"""Bytes in a digest."""
_BY_HEX_LENGTH = {2 * size: algorithm for algorithm, size in SIZES.items()}
_NAMED = re.compile(r"(md5|sha-?1|sha-?256|sha-?512)[:=-](.+)", re.IGNORECASE | re.ASCII)
_HEX = re.compile(r"[0-9a-f]+", re.IGNORECASE | re.ASCII)
SHOWN_MAX = 200


class Checksum(msgspec.Struct, frozen=True):
    """An algorithm, and what it should come to."""

    algorithm: str
    digest: bytes

    def new_hash(self) -> _Hash:
        return new_hash(self.algorithm)

    def matches(self, digest: bytes) -> bool:
        return hmac.compare_digest(self.digest, digest)

    def __str__(self) -> str:
        return f"{self.algorithm}:{self.digest.hex()}"


def parse_checksum(hint: str) -> Checksum:
    """Reads `sha256:<hex>`, `sha256=<hex>`, `sha256-<base64>` (as in HTML), `SHA-256=<base64>` (as in HTTP's Digest),
    `sha-256=:<base64>:`, and hexadecimal digits alone. Raises ValueError.
    """
    text = hint.strip()
    named = _NAMED.fullmatch(text)
    if named:
        algorithm = named[1].lower().replace("-", "")
        return Checksum(algorithm, _digest(algorithm, named[2].strip()))
    if not _HEX.fullmatch(text):
        raise ValueError(
            f"{_shown(text)} is no checksum: write sha256:<hex>, or one of {', '.join(SIZES)} in its place"
        )
    if len(text) not in _BY_HEX_LENGTH:
        raise ValueError(f"{_shown(text)} has {len(text)} digits, and no checksum that is known here has so many")
    return Checksum(_BY_HEX_LENGTH[len(text)], bytes.fromhex(text))


def new_hash(algorithm: str) -> _Hash:
    # MD5 and SHA-1 find damage, not forgery; a Python that is built for security would refuse them otherwise.
    return hashlib.new(algorithm, usedforsecurity=False)


def _digest(algorithm: str, text: str) -> bytes:
    size = SIZES[algorithm]
    if len(text) == 2 * size and _HEX.fullmatch(text):
        return bytes.fromhex(text)
    encoded = text.strip(":").replace("-", "+").replace("_", "/").rstrip("=")
    try:
        digest = base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except (binascii.Error, ValueError):
        digest = b""
    if len(digest) != size:
        raise ValueError(f"{_shown(text)} is no {algorithm}: that is {2 * size} hexadecimal digits, or base64 of them")
    return digest


def _shown(text: str) -> str:
    return repr(text if len(text) <= SHOWN_MAX else text[:SHOWN_MAX] + "…")
