"""The application: which call is answered by whom, and what an answer looks like where something is wrong."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from slipstream.console.answers import Refused, error_answer, refusal
from slipstream.console.forward import Forwarder
from slipstream.console.headers import CommonHeaders
from slipstream.console.metrics import CountedRequests
from slipstream.console.overview import Feed, OverviewCalls
from slipstream.console.search import Search
from slipstream.console.sources import Sources
from slipstream.console.static_files import static_routes

log = logging.getLogger(__name__)

NOT_HERE = {
    "slips": (
        ("/v2/slips", "/v2/slips/{rest:path}", "/v2/steps", "/v2/steps/{rest:path}"),
        "this process does not show slips: run `slipstream console` with SLIP_STORE, and start the broker with "
        "--console-url",
    ),
    "bus_dead_letters": (
        ("/v2/bus-dead-letters", "/v2/bus-dead-letters/{rest:path}"),
        "this process does not handle dead letters of the bus: use `slipstream bus dlq`, or run `slipstream console` "
        "and start the broker with --console-url",
    ),
    "jobs": (
        ("/v2/jobs", "/v2/jobs/{rest:path}", "/v2/job-dead-letters", "/v2/job-replays", "/v2/decoded"),
        "this process does not show jobs: run `slipstream console` with JOBS_URL where the extra `jobs` is installed, "
        "and start the broker with --console-url",
    ),
    "tables": (
        ("/v2/tables", "/v2/tables/{rest:path}", "/console/report"),
        "this process does not read tables: run `slipstream console` with PIPELINE_TABLES where the extra `pipeline` "
        "is installed, and start the broker with --console-url",
    ),
}
"""Source that may be missing → its paths, and the message of the error that they answer without it."""


HANDED_ON = b"x-slipstream-handed-on"
"""Header of requests that the broker hands to a console in another process."""


class Console:
    """An ASGI application that looks at its sources from `open` on, until `close`; `stop` ends what would go on."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._feed = Feed(sources)
        self._app = CommonHeaders(CountedRequests(_application(sources, self._feed), sources.metrics))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)

    async def open(self) -> None:
        await self._feed.open()

    def stop(self) -> None:
        self._feed.stop()
        self._sources.stop()

    async def close(self) -> None:
        await self._feed.close()
        await self._sources.close()


class FarConsole:
    """The page from here, and its calls from another process: where that is away, the page is there to say so."""

    def __init__(self, forwarder: Forwarder) -> None:
        self._forwarder = forwarder
        routes = [Route("/console/report", forwarder), *static_routes(), Route("/v2/{rest:path}", forwarder)]
        self._app = CommonHeaders(_starlette(routes))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app({**scope, "headers": [*scope["headers"], (HANDED_ON, b"1")]}, receive, send)

    async def open(self) -> None:
        """It connects when it is first needed."""

    def stop(self) -> None:
        self._forwarder.stop()

    async def close(self) -> None:
        await self._forwarder.close()


def create_console(sources: Sources) -> Console:
    """
    Example:
        console = create_console(Sources(stats))
        await console.open()
    """
    return Console(sources)


def _application(sources: Sources, feed: Feed) -> ASGIApp:
    routes: list[BaseRoute] = [
        *OverviewCalls(feed).routes(),
        *sources.parts.routes(),
        *sources.logs.routes(),
        *Search(sources.nouns, feed.topics, sources.stats).routes(),
    ]
    for noun in sources.nouns:
        routes += noun.routes()
    for name, (paths, words) in NOT_HERE.items():
        if getattr(sources, name) is None:
            routes += [Route(path, _Unavailable(words)) for path in paths]
    routes += static_routes()
    if sources.rest is not None:
        own = tuple(routes) if isinstance(sources.rest, Forwarder) else ()
        routes += [_Rest(path, sources.rest, own) for path in ("/v1/{rest:path}", "/v2/{rest:path}")]
    return _starlette(routes)


def _starlette(routes: Sequence[BaseRoute]) -> Starlette:
    app = Starlette(
        routes=routes,
        exception_handlers={Refused: _on_refused, HTTPException: _on_http, Exception: _on_bug},
    )
    app.router.redirect_slashes = False
    return app


class _Rest(Route):
    """The calls of the broker: those that are none of the console's own.

    A method that a path of the console does not have is refused here, and what the broker has handed on is not handed
    back to it. Otherwise the two would pass such a request to each other without end.
    """

    def __init__(self, path: str, broker: ASGIApp, own: Sequence[BaseRoute]) -> None:
        super().__init__(path, broker)
        self._own = own

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        is_own = any(route.matches(scope)[0] is Match.PARTIAL for route in self._own)
        if is_own or any(name == HANDED_ON for name, _ in scope["headers"]):
            return Match.NONE, {}
        return super().matches(scope)


class _Unavailable:
    """Whatever the method: it is not there."""

    def __init__(self, words: str) -> None:
        self._words = words

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await refusal(Request(scope), Refused("UNAVAILABLE", self._words))(scope, receive, send)


async def _on_refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return refusal(request, error)


async def _on_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        known = [route for route in request.app.routes if isinstance(route, Route)]
        methods = [route.methods or () for route in known if route.matches(request.scope)[0] is Match.PARTIAL]
        allow = ", ".join(sorted({method for each in methods for method in each}))
        message = f"use {allow} on {request.url.path}"
        return error_answer(request, 405, "METHOD_NOT_ALLOWED", message, headers={"Allow": allow})
    if error.status_code == 404:
        message = (
            f"there is nothing at {request.url.path}: the page is at /console/, and /v2/openapi.json lists the calls"
        )
        return error_answer(request, 404, "NOT_FOUND", message)
    return error_answer(request, error.status_code, "INVALID_ARGUMENT", error.detail)


async def _on_bug(request: Request, error: Exception) -> Response:
    log.error("a %s request to %s failed", request.method, request.url.path, exc_info=error)
    return error_answer(request, 500, "INTERNAL", "the console failed on this request; its log says why")
