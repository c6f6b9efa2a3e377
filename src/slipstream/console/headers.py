"""What every answer carries: the id of its request, and what a browser may do with it.

Also who may ask: a page of somebody else's in the same browser may not change anything here.
"""

from __future__ import annotations

import secrets

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from slipstream.console.answers import Refused, refusal
from slipstream.origins import READING, REFUSAL, is_foreign

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)
"""Nothing from elsewhere, and nothing that stands in the page itself."""

REQUEST_ID_MAX = 200


class CommonHeaders:
    """Wraps an application; what the application says itself wins."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope)
        request_id = given.get("x-request-id", "")[:REQUEST_ID_MAX] or secrets.token_hex(8)
        scope = {**scope, "slipstream.request_id": request_id}

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["X-Request-Id"] = request_id
                headers.setdefault("Content-Security-Policy", POLICY)
                headers.setdefault("X-Content-Type-Options", "nosniff")
                headers.setdefault("Referrer-Policy", "no-referrer")
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        app: ASGIApp = self._app
        if scope["method"] not in READING and _is_foreign(given):
            app = refusal(Request(scope), Refused("PERMISSION_DENIED", REFUSAL))
        await app(scope, receive, send_with_headers)


def _is_foreign(headers: Headers) -> bool:
    return is_foreign(headers.get("sec-fetch-site", ""), headers.get("origin", ""), headers.get("host", ""))
