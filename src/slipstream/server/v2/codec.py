"""How bodies are read, and what is answered where that fails."""

from __future__ import annotations

import base64
import binascii
from http import HTTPStatus
from typing import Literal, TypeAlias

from slipstream.api import ErrorResponse
from slipstream.api.media import JSON, MSGPACK, NDJSON
from slipstream.broker import BrokerError, BrokerFull, InProgress, InvalidArgument, NotFound, Overloaded, Unavailable


class UnsupportedMediaType(BrokerError):
    """The body is in a form nobody here reads."""

    code = "UNSUPPORTED_MEDIA_TYPE"


class OffsetOutOfRange(BrokerError):
    """Retention has removed what was asked for."""

    code = "OFFSET_OUT_OF_RANGE"

    def __init__(self, message: str, earliest_offset: int) -> None:
        super().__init__(message)
        self.earliest_offset = earliest_offset


def check_not_removed(offset: int | None, earliest: int, where: str) -> None:
    """Raises OffsetOutOfRange for an offset that was asked for and is before the earliest there is."""
    if offset is not None and offset < earliest:
        raise OffsetOutOfRange(
            f"offset {offset} of {where} was removed by retention: the earliest is {earliest}", earliest
        )


STATUS_OF_CODE = {
    "INVALID_ARGUMENT": 400,
    "NOT_FOUND": 404,
    "FAILED_PRECONDITION": 409,
    "OFFSET_OUT_OF_RANGE": 410,
    "UNSUPPORTED_MEDIA_TYPE": 415,
    "RESOURCE_EXHAUSTED": 429,
    "INTERNAL": 500,
    "UNAVAILABLE": 503,
}


def error_status(error: BrokerError) -> int:
    # 507, because 429 asks to wait, and waiting does not make room for another topic or group.
    return HTTPStatus.INSUFFICIENT_STORAGE if isinstance(error, BrokerFull) else STATUS_OF_CODE[error_code(error)]


def error_code(error: BrokerError) -> str:
    return "NOT_FOUND" if isinstance(error, NotFound) else error.code


Form: TypeAlias = Literal["json", "ndjson", "msgpack"]

_FORMS: dict[str, Form] = {
    "": "json",
    JSON: "json",
    # What curl -d and some libraries say when nobody tells them better.
    "application/x-www-form-urlencoded": "json",
    "text/plain": "json",
    NDJSON: "ndjson",
    "application/ndjson": "ndjson",
    "application/jsonl": "ndjson",
    MSGPACK: "msgpack",
    "application/x-msgpack": "msgpack",
    "application/vnd.msgpack": "msgpack",
}


def form_of(content_type: bytes, content_encoding: bytes) -> Form:
    if content_encoding and content_encoding.strip().lower() != b"identity":
        name = content_encoding.decode("latin-1")
        raise UnsupportedMediaType(f"send the body uncompressed: Content-Encoding {name[:80]} is not read")
    name = content_type.partition(b";")[0].strip().lower().decode("latin-1")
    form = _FORMS.get(name)
    if form is None:
        raise UnsupportedMediaType(f"send {JSON}, {NDJSON} or {MSGPACK}, not {name[:80]}")
    return form


def payload_bytes(payload: object, encoding: str | None, what: str) -> bytes:
    """A payload as it came in a request."""
    if isinstance(payload, bytes):
        if encoding is not None:
            raise InvalidArgument(f"{what}: base64 is for JSON; in MessagePack send the bytes")
        return payload
    if not isinstance(payload, str):
        raise InvalidArgument(f"{what} must be text or bytes")
    if encoding is None:
        return payload.encode()
    try:
        return base64.b64decode(payload, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidArgument(f"{what} is not base64") from None


def error_body(error: BrokerError) -> ErrorResponse:
    if isinstance(error, Overloaded):
        return ErrorResponse(error_code(error), error.message, error.reason, error.retry_after_ms)
    if isinstance(error, Unavailable):
        return ErrorResponse(error_code(error), error.message, retry_after_ms=error.retry_after_ms)
    if isinstance(error, BrokerFull):
        return ErrorResponse(error_code(error), error.message, error.reason)
    if isinstance(error, InProgress):
        return ErrorResponse(error_code(error), error.message, "in_progress")
    earliest = error.earliest_offset if isinstance(error, OffsetOutOfRange) else None
    return ErrorResponse(error_code(error), error.message, earliest_offset=earliest)
