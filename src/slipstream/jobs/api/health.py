"""`/health/live` and `/health/ready`: for who runs the service, without a token."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from slipstream.jobs.api.answers import json_answer
from slipstream.jobs.service import Health, Service


class HealthChecks:
    """There is no `starting` or `stopping` here: the port is open only in between."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def live(self, request: Request) -> Response:
        return json_answer({"status": "live"})  # the loop of who answers turns

    async def ready(self, request: Request) -> Response:
        health = await self._service.health()
        if health.status == "ok":
            return json_answer({"status": "ready"})
        return json_answer({"status": "waiting", "reason": self._why(health)}, 503)

    def _why(self, health: Health) -> str:
        """With a token, nobody without it is told addresses and names of buckets."""
        down = {name: part.reason for name, part in health.parts.items() if part.status != "ok"}
        if self._service.settings.token:
            return f"{', '.join(down)} down: GET /operators/health says why, to who has the token"
        return "; ".join(f"{name}: {reason}" for name, reason in down.items())
