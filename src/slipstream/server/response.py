"""HTTP responses as bytes."""

from __future__ import annotations

import math
from email.utils import formatdate
from http import HTTPStatus

import msgspec

from slipstream.broker import BrokerError, BrokerFull, Overloaded, Unavailable

_STATUS_OF_CODE = {
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 409,
    "RESOURCE_EXHAUSTED": 429,
    "UNAVAILABLE": 503,
    "INTERNAL": 500,
}

_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}

JSON = b"Content-Type: application/json; charset=utf-8\r\n"

encode_json = msgspec.json.Encoder().encode


class ErrorBody(msgspec.Struct, omit_defaults=True):
    """The common error shape of v1."""

    error: str
    message: str
    reason: str = ""
    retry_after_ms: int = 0


class DateHeader:
    """The Date header, made once a second."""

    def __init__(self) -> None:
        self.line = b""
        self.refresh()

    def refresh(self) -> None:
        self.line = b"Date: " + formatdate(usegmt=True).encode() + b"\r\n"


DATE = DateHeader()


def render(status: int, body: bytes = b"", headers: bytes = JSON) -> bytes:
    if status == HTTPStatus.NO_CONTENT:
        return b"".join((_STATUS_LINES[status], DATE.line, b"\r\n"))
    body += b"\n"  # as DriftQ ends its answers, and kinder to a terminal
    return b"".join((_STATUS_LINES[status], DATE.line, headers, b"Content-Length: %d\r\n\r\n" % len(body), body))


def render_as(status: int, body: bytes, headers: bytes) -> bytes:
    """A body that is complete as it is, with its Content-Type among the headers."""
    return b"".join((_STATUS_LINES[status], DATE.line, headers, b"Content-Length: %d\r\n\r\n" % len(body), body))


def render_error(status: int, code: str, message: str, headers: bytes = b"") -> bytes:
    return render(status, encode_json(ErrorBody(code, message)), JSON + headers)


def not_found(path: str) -> str:
    """Return the message of a 404."""
    nothing = f"there is nothing at {path}" if path.startswith("/") else f"the request target {path!r} is not a path"
    return f"{nothing}; use /v1/* endpoints, or /v2/*: /v2/openapi.json lists them"


def retry_after_s(error: BrokerError) -> int:
    """Return the value of `Retry-After` for an error, in seconds; 0 where there is none."""
    if isinstance(error, Overloaded | Unavailable) and error.retry_after_ms:
        return max(1, math.ceil(error.retry_after_ms / 1000))
    return 0


def retry_after(error: BrokerError) -> bytes:
    """Return the header line `Retry-After` for an error, or nothing."""
    wait_s = retry_after_s(error)
    return b"Retry-After: %d\r\n" % wait_s if wait_s else b""


def render_broker_error(error: BrokerError) -> bytes:
    is_full = isinstance(error, BrokerFull)
    status = HTTPStatus.INSUFFICIENT_STORAGE if is_full else _STATUS_OF_CODE[error.code]
    reason = error.reason if isinstance(error, Overloaded | BrokerFull) else ""
    wait_ms = error.retry_after_ms if isinstance(error, Overloaded | Unavailable) else 0
    body = ErrorBody(error.code, error.message, reason, wait_ms)
    return render(status, encode_json(body), JSON + retry_after(error))


def with_headers(response: bytes, headers: bytes) -> bytes:
    """The same response with more headers, put right behind its status line."""
    line, rest = response.split(b"\r\n", 1)
    return b"".join((line, b"\r\n", headers, rest))
