"""Everything that is not on the hot path: an ordinary ASGI application on the same port."""

from __future__ import annotations

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from slipstream.server.metrics import Metrics


def create_app(metrics: Metrics) -> ASGIApp:
    async def show_metrics(_: Request) -> Response:
        return Response(metrics.render(), media_type=CONTENT_TYPE_LATEST)

    app = Starlette(
        routes=[Route("/metrics", show_metrics, methods=["GET"])],
        middleware=[Middleware(RequestId)],
        exception_handlers={404: _not_found, 405: _method_not_allowed},
    )
    app.router.redirect_slashes = False  # an unknown path is 404, with or without a slash at its end
    return app


async def _not_found(request: Request, _: Exception) -> Response:
    message = f"there is nothing at {request.url.path}; use /v1/* endpoints"
    return _error(404, "NOT_FOUND", message)


async def _method_not_allowed(request: Request, _: Exception) -> Response:
    return _error(405, "METHOD_NOT_ALLOWED", f"use GET on {request.url.path}", {"Allow": "GET, HEAD"})


def _error(status: int, code: str, message: str, headers: dict[str, str] | None = None) -> Response:
    body = {"error": code, "message": message}
    return JSONResponse(body, status, headers, media_type="application/json; charset=utf-8")


class RequestId:
    """Echoes X-Request-Id, as the hot path does."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request_id = dict(scope["headers"]).get(b"x-request-id") if scope["type"] == "http" else None
        if request_id is None:
            await self.app(scope, receive, send)
            return

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"x-request-id", request_id[:200])]
            await send(message)

        await self.app(scope, receive, send_with_id)
