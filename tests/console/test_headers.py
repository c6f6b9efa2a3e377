"""What every answer carries, and who may ask."""

from __future__ import annotations

from collections.abc import Mapping

import aiohttp
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from slipstream.console.answers import request_id_of
from slipstream.console.headers import POLICY, CommonHeaders
from tests.client.loop import in_loop
from tests.console.site import listening


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    own = {"Content-Security-Policy": "default-src 'self'"} if scope["path"] == "/own" else {}
    await PlainTextResponse(request_id_of(Request(scope)), headers=own)(scope, receive, send)


async def answered(method: str = "GET", path: str = "/", **headers: str) -> tuple[int, str, Mapping[str, str], str]:
    async with listening(CommonHeaders(app)) as url, aiohttp.ClientSession() as session:
        given = {name.replace("_", "-"): value.replace("HERE", url) for name, value in headers.items()}
        async with session.request(method, url + path, headers=given) as answer:
            return answer.status, await answer.text(), answer.headers, url


@in_loop
async def test_every_answer_says_what_a_browser_may_do_with_it() -> None:
    _, _, headers, _ = await answered()
    assert headers["Content-Security-Policy"] == POLICY
    assert "unsafe" not in POLICY
    assert "http" not in POLICY, "nothing from elsewhere"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cache-Control"] == "no-store"


@in_loop
async def test_what_the_application_says_itself_stays() -> None:
    _, _, headers, _ = await answered(path="/own")
    assert headers["Content-Security-Policy"] == "default-src 'self'"


@in_loop
async def test_the_id_of_a_request_is_echoed_or_made_and_the_application_knows_it() -> None:
    _, body, headers, _ = await answered(X_Request_Id="mine")
    assert body == headers["X-Request-Id"] == "mine"
    _, body, headers, _ = await answered()
    assert body == headers["X-Request-Id"]
    assert len(body) >= 8
    _, _, headers, _ = await answered(X_Request_Id="x" * 5_000)
    assert headers["X-Request-Id"] == "x" * 200


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("POST", {}, 200),
        ("POST", {"Origin": "HERE"}, 200),
        ("POST", {"Origin": "HERE", "Sec_Fetch_Site": "same-origin"}, 200),
        ("POST", {"Origin": "https://10.0.0.5:8443", "Sec_Fetch_Site": "same-origin"}, 200),  # behind a proxy
        ("POST", {"Sec_Fetch_Site": "none"}, 200),
        ("POST", {"Origin": "http://elsewhere"}, 403),
        ("POST", {"Origin": "null"}, 403),
        ("DELETE", {"Sec_Fetch_Site": "cross-site"}, 403),
        ("PUT", {"Origin": "HERE", "Sec_Fetch_Site": "same-site"}, 403),
        ("GET", {"Origin": "http://elsewhere", "Sec_Fetch_Site": "cross-site"}, 200),
    ],
)
def test_a_page_of_somebody_else_changes_nothing(method: str, headers: dict[str, str], status: int) -> None:
    @in_loop
    async def story() -> None:
        found, body, answer_headers, _ = await answered(method, **headers)
        assert found == status
        if status == 403:
            assert "PERMISSION_DENIED" in body
            assert answer_headers["X-Request-Id"] in body

    story()
