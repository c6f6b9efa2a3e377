"""`POST /jobs`."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from slipstream.jobs.api.answers import json_answer
from slipstream.jobs.api.body import read_body
from slipstream.jobs.refusal import RefusalCode, Refused
from slipstream.jobs.service import Service
from slipstream.spans import active_span, describe, span, trace_id

JOB_TYPE = "x-fetchbox-job-type"
IDEMPOTENCY_KEY = "x-fetchbox-idempotency-key"
TENANT = "x-fetchbox-tenant"
TRACER = "slipstream.jobs"


class Submissions:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def submit(self, request: Request) -> Response:
        job_type = request.headers.get(JOB_TYPE, "").strip()
        came = _traceparent(request)
        about = {"http.request.method": "POST", "http.route": "/jobs", "jobs.type": job_type}
        with span("POST /jobs", TRACER, about, traceparent=came, kind="server") as active:
            try:
                body = await self._read(request, job_type)
                accepted = await self._service.ingress.submit(
                    job_type,
                    body,
                    tenant=_text(request, TENANT),
                    idempotency_key=_text(request, IDEMPOTENCY_KEY) or None,
                    trace_id=trace_id(active_span() or came) or "",
                )
            except Refused as refused:
                describe(active, http__response__status_code=refused.code.status, jobs__refusal=refused.code.value)
                raise
            describe(active, http__response__status_code=202, jobs__job_id=accepted.job_id)
        return json_answer(accepted, 202)

    async def _read(self, request: Request, job_type: str) -> bytes:
        try:
            _check_type(job_type)
            return await read_body(request, self._service.settings.max_manifest_bytes)
        except Refused as refused:
            self._service.ingress.count_refused(refused)
            raise


def _check_type(job_type: str) -> None:
    if not job_type:
        raise Refused(RefusalCode.INVALID_PAYLOAD, "say of which type the job is: header X-Fetchbox-Job-Type")


def _text(request: Request, name: str) -> str:
    """Headers are bytes, which most clients fill with UTF-8; Starlette reads them as Latin-1."""
    text = request.headers.get(name, "").strip()
    try:
        return text.encode("latin-1").decode()
    except UnicodeDecodeError:
        return text


def _traceparent(request: Request) -> str:
    """ "" where there is none, or no good one: who sends nonsense gets a trace of its own."""
    came = request.headers.get("traceparent", "").strip()
    return came if trace_id(came) else ""
