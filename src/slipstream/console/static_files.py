"""The page itself: the files of `static/`, under `/console/`."""

from __future__ import annotations

from pathlib import Path

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from slipstream import __version__

FOLDER = Path(__file__).parent / "static"


class _Files(StaticFiles):
    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        # Asked for again each time, and sent again only where it has changed: a new release is there at once.
        response.headers["Cache-Control"] = "no-cache"
        return response


def static_routes(folder: Path = FOLDER) -> list[BaseRoute]:
    return [
        Route("/", _show_front, methods=["GET"]),
        Route("/console", _to_the_page, methods=["GET"]),
        Mount("/console", _Files(directory=folder, html=True, check_dir=False)),
    ]


async def _show_front(request: Request) -> Response:
    """Redirect browsers to the page, and tell programs what answers here, as the broker does."""
    if "text/html" in request.headers.get("accept", ""):
        return await _to_the_page(request)
    return JSONResponse({"service": "slipstream console", "version": __version__, "console": "/console/"})


async def _to_the_page(request: Request) -> Response:
    return RedirectResponse("/console/", 307)
