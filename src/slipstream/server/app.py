"""Everything that is not on the hot path: an ordinary ASGI application on the same port."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.convertors import Convertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from slipstream import __version__
from slipstream.engine import Engine, Redrives
from slipstream.limits import Limits
from slipstream.server.metrics import Metrics
from slipstream.server.response import not_found
from slipstream.server.v2.endpoint import Endpoint, serve_call
from slipstream.server.v2.endpoints import COLD, CONSOLE
from slipstream.server.v2.openapi import openapi


class Natural(Convertor[int]):
    """A number in a path. Starlette's own takes any number of digits, and fails where Python will not read them."""

    regex = "[0-9]{1,18}"

    def convert(self, value: str) -> int:
        return int(value)

    def to_string(self, value: int) -> str:
        return str(value)


register_url_convertor("natural", Natural())


class Console(Protocol):
    """The application that answers what people ask a console: its own, or one in another process."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...

    async def open(self) -> None: ...

    def stop(self) -> None:
        """What would go on for ever ends."""

    async def close(self) -> None: ...


def create_app(
    engine: Engine, limits: Limits, metrics: Metrics, redrives: Redrives, console: Console | None = None
) -> Starlette:
    async def show_metrics(_: Request) -> Response:
        return Response(metrics.render(), media_type=CONTENT_TYPE_LATEST)

    async def show_openapi(_: Request) -> Response:
        return JSONResponse(openapi())

    async def is_live(_: Request) -> Response:
        return JSONResponse({"status": "live"})

    async def is_ready(request: Request) -> Response:
        if request.app.state.stopping.is_set():
            return JSONResponse({"status": "stopping", "reason": "it answers what is under way"}, 503)
        if engine.trouble is not None:
            return JSONResponse({"status": "waiting", "reason": engine.trouble.message}, 503)
        conditions = [f"{condition.text}: {condition.detail}" for condition in engine.conditions]
        return JSONResponse({"status": "ready"} | ({"conditions": conditions} if conditions else {}))

    async def show_front(request: Request) -> Response:
        """Redirect browsers to the console, and tell programs what answers here."""
        if console is not None and "text/html" in request.headers.get("accept", ""):
            return RedirectResponse("/console/", 307)
        links = {"console": "/console/"} if console is not None else {}
        return JSONResponse({"service": "slipstream", "version": __version__, **links, "calls": "/v2/openapi.json"})

    by_path: dict[str, dict[str, Endpoint]] = {}
    for endpoint in COLD:
        by_path.setdefault(endpoint.path, {})[endpoint.method] = endpoint
    app = Starlette(
        routes=[
            Route("/", show_front, methods=["GET"]),
            Route("/metrics", show_metrics, methods=["GET"]),
            Route("/health/live", is_live, methods=["GET"]),
            Route("/health/ready", is_ready, methods=["GET"]),
            Route("/v2/openapi.json", show_openapi, methods=["GET"]),
            *(_route(path, endpoints, engine, limits) for path, endpoints in by_path.items()),
            *(_console_routes(console) if console is not None else []),
        ],
        middleware=[Middleware(RequestId)],
        exception_handlers={404: _not_found, 405: _method_not_allowed},
    )
    app.router.redirect_slashes = False  # an unknown path is 404, with or without a slash at its end
    app.state.redrives = redrives
    app.state.stopping = asyncio.Event()
    """Set when the server stops: what would go on for ever ends."""
    app.state.started_ms = time.time_ns() // 1_000_000
    return app


def allowed_methods(app: Starlette, path: str) -> list[str]:
    """Return the methods that the application answers on a path; none where it has no such path."""
    for route in app.routes:
        if isinstance(route, Route) and route.path_regex.match(path):
            # The routes of the console take any method; the console itself refuses those it does not have.
            asked = {endpoint.method for endpoint in CONSOLE if endpoint.path == route.path}
            return sorted(route.methods or asked or {"GET", "HEAD"})
    return []


def _route(path: str, endpoints: dict[str, Endpoint], engine: Engine, limits: Limits) -> Route:
    async def serve(request: Request) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        return await serve_call(endpoints[method], engine, limits, request)

    return Route(path, serve, methods=list(endpoints))


def _console_routes(console: Console) -> list[Route]:
    paths = dict.fromkeys(endpoint.path for endpoint in CONSOLE)
    return [
        Route(path, console)
        for path in (
            *paths,
            "/console",
            "/console/{path:path}",
        )
    ]


async def _not_found(request: Request, _: Exception) -> Response:
    return _error(404, "NOT_FOUND", not_found(request.scope["path"]))


async def _method_not_allowed(request: Request, error: Exception) -> Response:
    headers = error.headers if isinstance(error, HTTPException) else None
    allow = (headers or {}).get("Allow", "GET, HEAD")
    return _error(405, "METHOD_NOT_ALLOWED", f"use {allow} on {request.url.path}", {"Allow": allow})


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
            if message["type"] == "http.response.start" and all(
                name != b"x-request-id" for name, _ in message["headers"]
            ):
                message["headers"] = [*message["headers"], (b"x-request-id", request_id[:200])]
            await send(message)

        await self.app(scope, receive, send_with_id)
