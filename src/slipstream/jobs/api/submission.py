"""`POST /jobs`."""

from __future__ import annotations

import re

from starlette.requests import Request
from starlette.responses import Response

from slipstream.jobs.api.answers import json_answer
from slipstream.jobs.api.body import read_body
from slipstream.jobs.refusal import RefusalCode, Refused
from slipstream.jobs.service import Service

JOB_TYPE = "x-fetchbox-job-type"
IDEMPOTENCY_KEY = "x-fetchbox-idempotency-key"
TENANT = "x-fetchbox-tenant"

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}\Z")


class Submissions:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def submit(self, request: Request) -> Response:
        job_type = request.headers.get(JOB_TYPE, "").strip()
        if not job_type:
            raise Refused(RefusalCode.INVALID_PAYLOAD, "say of which type the job is: header X-Fetchbox-Job-Type")
        accepted = await self._service.ingress.submit(
            job_type,
            await read_body(request, self._service.settings.max_manifest_bytes),
            tenant=_text(request, TENANT),
            idempotency_key=_text(request, IDEMPOTENCY_KEY) or None,
            trace_id=_trace_id(request),
        )
        return json_answer(accepted, 202)


def _text(request: Request, name: str) -> str:
    """Headers are bytes, which most clients fill with UTF-8; Starlette reads them as Latin-1."""
    text = request.headers.get(name, "").strip()
    try:
        return text.encode("latin-1").decode()
    except UnicodeDecodeError:
        return text


def _trace_id(request: Request) -> str:
    found = _TRACEPARENT.match(request.headers.get("traceparent", "").strip())
    return found[1] if found else ""
