"""JSON or MessagePack, as a request asks: how answers are written."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import msgspec

from slipstream.api.media import JSON, MSGPACK

Encode: TypeAlias = Callable[[Any], bytes]
PayloadFields: TypeAlias = "tuple[str | bytes, Literal['base64'] | None]"


class Codec:
    """One of the two forms."""

    def __init__(self, name: str, media_type: str, encode: Encode, payload: Callable[[bytes], PayloadFields]) -> None:
        self.name = name
        self.media_type = media_type
        self.encode = encode
        self.payload = payload
        """A payload as it stands in an answer, and its `encoding`."""
        self.content_type = b"Content-Type: " + media_type.encode() + b"\r\n"


def _text_or_base64(payload: bytes) -> PayloadFields:
    """Ruling 16."""
    try:
        return payload.decode(), None
    except UnicodeDecodeError:
        return base64.b64encode(payload).decode(), "base64"


_encode_json = msgspec.json.Encoder().encode

JSON_CODEC = Codec("JSON", f"{JSON}; charset=utf-8", lambda answer: _encode_json(answer) + b"\n", _text_or_base64)
MSGPACK_CODEC = Codec("MessagePack", MSGPACK, msgspec.msgpack.Encoder().encode, lambda payload: (payload, None))


def answer_codec(content_type: bytes, accept: bytes) -> Codec:
    """What Accept asks for; otherwise the form the request came in."""
    accept = accept.lower()
    if b"msgpack" in accept:
        return MSGPACK_CODEC
    if b"json" in accept:
        return JSON_CODEC
    return MSGPACK_CODEC if b"msgpack" in content_type.lower() else JSON_CODEC
