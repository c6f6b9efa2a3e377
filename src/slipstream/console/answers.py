"""How answers look: JSON, and errors of one shape, each with the id of its request."""

from __future__ import annotations

import math
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

T = TypeVar("T")

BODY_BYTES_MAX = 16 << 20
"""Of a request: a message that is to be decoded is the largest of them."""

STATUS_OF_CODE = {
    "INVALID_ARGUMENT": 400,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "METHOD_NOT_ALLOWED": 405,
    "FAILED_PRECONDITION": 409,
    "PAYLOAD_TOO_LARGE": 413,
    "RESOURCE_EXHAUSTED": 429,
    "INTERNAL": 500,
    "UNIMPLEMENTED": 501,
    "BAD_GATEWAY": 502,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}


class Refused(Exception):
    """What cannot be done, in words. The code is one of `STATUS_OF_CODE`."""

    def __init__(self, code: str, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.retry_after_s = retry_after_s


def json_answer(value: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def refusal(request: Request, refused: Refused) -> Response:
    status = STATUS_OF_CODE[refused.code]
    return error_answer(request, status, refused.code, refused.message, retry_after_s=refused.retry_after_s)


def error_answer(
    request: Request,
    status: int,
    code: str,
    message: str,
    *,
    retry_after_s: float | None = None,
    headers: dict[str, str] | None = None,
) -> Response:
    body = {"error": code, "message": message, "request_id": request_id_of(request)}
    response = json_answer(body, status)
    response.headers.update(headers or {})
    if retry_after_s is not None:
        response.headers["Retry-After"] = str(max(1, math.ceil(retry_after_s)))
    return response


def request_id_of(request: Request) -> str:
    return str(request.scope.get("slipstream.request_id", ""))


async def read_json(request: Request, kind: type[T]) -> T:
    """Raises Refused."""
    pieces, size = [], 0
    async for piece in request.stream():
        size += len(piece)
        if size > BODY_BYTES_MAX:
            raise Refused("PAYLOAD_TOO_LARGE", f"the body is larger than {BODY_BYTES_MAX} bytes")
        pieces.append(piece)
    try:
        return msgspec.json.decode(b"".join(pieces) or b"{}", type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Refused("INVALID_ARGUMENT", f"the body cannot be used: {error}") from error


def read_query(request: Request, kind: type[T]) -> T:
    """Raises Refused."""
    try:
        return msgspec.convert(dict(request.query_params), kind, strict=False)
    except msgspec.ValidationError as error:
        raise Refused("INVALID_ARGUMENT", f"the parameters cannot be used: {error}") from error
