"""The ASGI application."""

from __future__ import annotations

import hmac
import logging
from collections.abc import Awaitable, Callable

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from slipstream.bus import BusError, Unsupported
from slipstream.jobs.api.answers import error_answer, refusal_answer
from slipstream.jobs.api.health import HealthChecks
from slipstream.jobs.api.operators import Operators
from slipstream.jobs.api.submission import Submissions
from slipstream.jobs.errors import JobsError
from slipstream.jobs.refusal import Refused
from slipstream.jobs.service import Service

log = logging.getLogger(__name__)

Endpoint = Callable[[Request], Awaitable[Response]]


def create_app(service: Service) -> Starlette:
    """
    Example:
        app = create_app(service)  # to be mounted, or served by any ASGI server
    """
    submissions = Submissions(service)
    operators = Operators(service)
    checks = HealthChecks(service)
    kept = _Keeper(service.settings.token)

    async def metrics(request: Request) -> Response:
        return Response(generate_latest(service.bus.registry or REGISTRY), media_type=CONTENT_TYPE_LATEST)

    return Starlette(
        routes=[
            Route("/jobs", kept(submissions.submit), methods=["POST"]),
            Route("/metrics", metrics, methods=["GET"]),
            Route("/health/live", checks.live, methods=["GET"]),
            Route("/health/ready", checks.ready, methods=["GET"]),
            Route("/operators/health", kept(operators.health), methods=["GET"]),
            Route("/operators/jobs", kept(operators.jobs), methods=["GET"]),
            # Direct producers may call a job anything, with slashes in it, too.
            Route("/operators/jobs/{job_id:path}/logs", kept(operators.logs), methods=["GET"]),
            Route("/operators/jobs/{job_id:path}/cancel", kept(operators.cancel), methods=["POST"]),
            Route("/operators/jobs/{job_id:path}/pause", kept(operators.pause), methods=["POST"]),
            Route("/operators/jobs/{job_id:path}/resume", kept(operators.resume), methods=["POST"]),
            Route("/operators/jobs/{job_id:path}/requeue", kept(operators.requeue), methods=["POST"]),
            Route("/operators/jobs/{job_id:path}", kept(operators.job), methods=["GET"]),
            Route("/operators/dlq", kept(operators.dead_letters), methods=["GET"]),
            Route("/operators/replay", kept(operators.replay), methods=["POST"]),
            Route("/operators/cleanup", kept(operators.cleanup), methods=["POST"]),
            Route("/operators/rebuild", kept(operators.rebuild), methods=["POST"]),
        ],
        exception_handlers={
            Refused: _on_refused,
            HTTPException: _on_http,
            msgspec.DecodeError: _on_invalid,
            Unsupported: _on_unsupported,
            BusError: _on_unavailable,
            JobsError: _on_unavailable,
            Exception: _on_bug,
        },
    )


class _Keeper:
    """Lets those in who have the token, where one is configured."""

    def __init__(self, token: str) -> None:
        self._expected = f"Bearer {token}".encode() if token else b""

    def __call__(self, endpoint: Endpoint) -> Endpoint:
        async def guarded(request: Request) -> Response:
            given = request.headers.get("authorization", "").encode("latin-1")  # as it came
            if self._expected and not hmac.compare_digest(given, self._expected):
                return error_answer(
                    401,
                    "UNAUTHORIZED",
                    "send the service's token as Authorization: Bearer … (JOBS_TOKEN)",
                    headers={"www-authenticate": "Bearer"},
                )
            return await endpoint(request)

        return guarded


async def _on_refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return refusal_answer(error)


async def _on_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    codes = {404: "NOT_FOUND", 405: "METHOD_NOT_ALLOWED"}
    headers = dict(error.headers or {})
    return error_answer(error.status_code, codes.get(error.status_code, "INVALID"), error.detail, headers=headers)


async def _on_invalid(request: Request, error: Exception) -> Response:
    return error_answer(400, "INVALID_ARGUMENT", str(error))


async def _on_unsupported(request: Request, error: Exception) -> Response:
    return error_answer(501, "UNSUPPORTED", str(error))


async def _on_unavailable(request: Request, error: Exception) -> Response:
    log.warning("%s %s: %s", request.method, request.url.path, error)
    return error_answer(503, "UNAVAILABLE", str(error), headers={"retry-after": "1"})


async def _on_bug(request: Request, error: Exception) -> Response:
    return error_answer(500, "INTERNAL", "this is a mistake of the service: its log has the details")
