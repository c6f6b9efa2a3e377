"""How answers look: JSON, and errors of one shape."""

from __future__ import annotations

import math
from typing import Any

import msgspec
from starlette.responses import Response

from slipstream.jobs.refusal import Refused


def json_answer(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(value), status, headers, media_type="application/json")


def error_answer(
    status: int, code: str, message: str, *, job_id: str = "", headers: dict[str, str] | None = None
) -> Response:
    error = {"code": code, "message": message, "job_id": job_id or None}
    return json_answer({"error": error}, status, headers)


def refusal_answer(refused: Refused) -> Response:
    headers = {} if refused.retry_after_s is None else {"retry-after": str(max(1, math.ceil(refused.retry_after_s)))}
    return error_answer(
        refused.code.status, refused.code.value, refused.message, job_id=refused.job_id, headers=headers
    )
