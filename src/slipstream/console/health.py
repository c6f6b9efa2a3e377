"""`/health/live`, `/health/ready` and `/metrics` of the console's own process."""

from __future__ import annotations

from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, generate_latest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from slipstream.console.answers import json_answer
from slipstream.console.sources import Noun


class Probes(Noun):
    """Ready as soon as it answers: to say that the broker is away is its work, too."""

    what = "the console"
    link = "#/"

    def __init__(self) -> None:
        self._is_stopping = False

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/health/live", self.is_live, methods=["GET"]),
            Route("/health/ready", self.is_ready, methods=["GET"]),
            Route("/metrics", self.metrics, methods=["GET"]),
        ]

    async def is_live(self, request: Request) -> Response:
        return json_answer({"status": "live"})

    async def is_ready(self, request: Request) -> Response:
        if self._is_stopping:
            return json_answer({"status": "stopping", "reason": "it answers what is under way"}, 503)
        return json_answer({"status": "ready"})

    async def metrics(self, request: Request) -> Response:
        return Response(generate_latest(REGISTRY), media_type=CONTENT_TYPE_LATEST)

    def stop(self) -> None:
        self._is_stopping = True
