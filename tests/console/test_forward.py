"""Requests that are handed on: as they came, there and back."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from starlette.types import Receive, Scope, Send
from yarl import URL

from slipstream.console.forward import ERROR_BYTES_MAX, Forwarder
from slipstream.console.headers import CommonHeaders
from tests.bus.sites.site import free_port
from tests.client.loop import in_loop
from tests.console.site import ask, listening


class Upstream:
    """Somebody else's server, which says what it was asked."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.gone = asyncio.Event()
        self.go_on = asyncio.Event()
        self.url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/events":
            return await self._events(request)
        if request.path == "/hangs":
            return await self._hang()
        if request.path == "/cut":
            assert request.transport is not None
            request.transport.close()
            return web.Response()
        body = await request.read()
        said = {
            "method": request.method,
            "path": request.raw_path,
            "body": body.decode("latin-1"),
            "headers": [[name.lower(), value] for name, value in request.headers.items()],
        }
        status = int(request.query.get("status", "200"))
        answer = web.Response(status=status, body=json.dumps(said), content_type="application/json")
        answer.headers.add("Set-Cookie", "a=1")
        answer.headers.add("Set-Cookie", "b=2")
        answer.headers["Connection"] = "keep-alive, x-between"
        answer.headers["X-Between"] = "neighbours"
        if "location" in request.query:
            answer.headers["Location"] = request.query["location"]
        return answer

    async def _hang(self) -> web.StreamResponse:
        """Never so much as begins to answer."""
        self.asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.gone.set()
        raise AssertionError("nothing sets it")

    async def _events(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"data: first\n\n")
        try:
            await self.go_on.wait()
            if "breaks" in request.query:
                assert request.transport is not None
                request.transport.close()
            while True:
                await response.write(b"data: more\n\n")
                await asyncio.sleep(0.01)
        finally:
            self.gone.set()


@contextlib.asynccontextmanager
async def between(**given: object) -> AsyncIterator[tuple[Upstream, Forwarder, str]]:
    upstream = Upstream()
    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", upstream.handle)
    runner = web.AppRunner(app, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    upstream.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    forwarder = Forwarder(upstream.url, what="the broker", start="slipstream serve", **given)  # type: ignore[arg-type]
    try:
        async with listening(CommonHeaders(forwarder)) as url:
            yield upstream, forwarder, url
    finally:
        await forwarder.close()
        await runner.cleanup()


@in_loop
async def test_method_path_query_body_and_headers_arrive_as_they_were() -> None:
    async with between() as (_, _, url):
        async with aiohttp.ClientSession() as session:
            asked = session.patch(
                URL(f"{url}/v2/topics/a%2Fb?x=1%262&y=%2B", encoded=True),
                data=b"\x00\xffbody",
                headers={"X-Mine": "yes", "X-Request-Id": "r-7", "Keep-Alive": "9", "Accept": "text/x"},
            )
            async with asked as answer:
                said = await answer.json()
                assert answer.headers["X-Request-Id"] == "r-7"
                assert answer.headers.getall("Set-Cookie") == ["a=1", "b=2"]
                assert "X-Between" not in answer.headers, "it was between the two of them"
        headers = dict(said["headers"])
        assert (said["method"], said["path"]) == ("PATCH", "/v2/topics/a%2Fb?x=1%262&y=%2B")
        assert said["body"] == "\x00\xffbody"
        assert (headers["x-mine"], headers["x-request-id"], headers["accept"]) == ("yes", "r-7", "text/x")
        assert headers["host"] == url.removeprefix("http://"), "who is asked can tell where the page came from"
        assert "keep-alive" not in headers


@in_loop
async def test_a_body_of_unknown_length_is_passed_on_as_it_comes() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(50):
            yield b"x" * 10_000

    async with between() as (_, _, url):
        _, said, _ = await ask(f"{url}/upload", "POST", data=pieces())
        assert len(said["body"]) == 500_000


@in_loop
async def test_a_request_without_an_id_gets_one_that_goes_along() -> None:
    async with between() as (_, _, url):
        _, said, headers = await ask(f"{url}/v2/topics")
        assert dict(said["headers"])["x-request-id"] == headers["X-Request-Id"] != ""


@in_loop
async def test_a_redirect_is_the_callers_business() -> None:
    async with between() as (_, _, url):
        status, _, headers = await ask(f"{url}/?status=307&location=/elsewhere", allow_redirects=False)
        assert (status, headers["Location"]) == (307, "/elsewhere")


@in_loop
async def test_events_arrive_one_by_one_and_end_there_when_nobody_listens_here() -> None:
    async with between() as (upstream, _, url):
        async with aiohttp.ClientSession() as session, session.get(f"{url}/events") as answer:
            assert answer.headers["Content-Type"] == "text/event-stream"
            assert await answer.content.readline() == b"data: first\n", "before there is a second"
            upstream.go_on.set()
            assert await answer.content.readuntil(b"more\n")
            assert not upstream.gone.is_set()
        await upstream.gone.wait()


def test_events_of_one_who_is_killed_end_for_who_follows_them(caplog: pytest.LogCaptureFixture) -> None:
    @in_loop
    async def story() -> None:
        async with (
            between() as (upstream, _, url),
            aiohttp.ClientSession() as session,
            session.get(f"{url}/events?breaks") as answer,
        ):
            await answer.content.readline()
            upstream.go_on.set()
            await answer.read()

    story()
    (line,) = [record for record in caplog.records if record.name.startswith("slipstream")]
    assert line.getMessage().startswith("the broker at http://127.0.0.1:")
    assert "broke off in the middle of an answer" in line.getMessage()


@in_loop
async def test_a_stream_ends_when_the_forwarder_stops() -> None:
    async with between() as (upstream, forwarder, url), aiohttp.ClientSession() as session:
        async with session.get(f"{url}/events") as answer:
            await answer.content.readline()
            forwarder.stop()
            with contextlib.suppress(aiohttp.ClientPayloadError):  # it was not complete, and shows it
                await answer.read()
        await upstream.gone.wait()


@pytest.mark.parametrize("how", [{"method": "GET"}, {"method": "POST", "data": b"body"}])
def test_one_who_does_not_begin_to_answer_is_left_when_nobody_waits_any_more(how: dict[str, Any]) -> None:
    @in_loop
    async def story() -> None:
        async with between() as (upstream, _, url), aiohttp.ClientSession() as session:
            asking = asyncio.create_task(session.request(url=f"{url}/hangs", **how).__aenter__())
            await upstream.asked.wait()
            asking.cancel()
            await upstream.gone.wait()

    story()


@in_loop
async def test_one_who_does_not_begin_to_answer_is_left_when_the_forwarder_stops() -> None:
    async with between() as (upstream, forwarder, url):
        asking = asyncio.create_task(ask(f"{url}/hangs"))
        await upstream.asked.wait()
        forwarder.stop()
        status, answer, _ = await asking
        assert (status, answer["error"]) == (503, "UNAVAILABLE")
        assert "this process stops" in answer["message"]
        await upstream.gone.wait()


@in_loop
async def test_one_who_does_not_begin_to_answer_is_told_of_in_words() -> None:
    async with between(timeout_ms=1_000) as (upstream, _, url):
        status, answer, _ = await ask(f"{url}/hangs", "POST", data=b"body")
        assert (status, answer["error"]) == (504, "DEADLINE_EXCEEDED")
        assert f"the broker at {upstream.url} is there, and has not begun to answer" in answer["message"]
        assert "CONSOLE_ANSWER_TIMEOUT_MS" in answer["message"]
        await upstream.gone.wait()


@in_loop
async def test_an_answer_that_has_begun_may_take_its_time() -> None:
    async with between(timeout_ms=1_000) as (upstream, _, url), aiohttp.ClientSession() as session:
        asked = session.get(f"{url}/events")
        async with asked as answer:
            await answer.content.readline()
            await asyncio.sleep(1.1)  # longer than an answer may take to begin
            upstream.go_on.set()
            assert await answer.content.readuntil(b"more\n")


@in_loop
async def test_nobody_there_is_said_with_what_to_start() -> None:
    forwarder = Forwarder(f"127.0.0.1:{free_port()}", what="the broker", start="slipstream serve")
    async with listening(CommonHeaders(forwarder)) as url:
        status, answer, headers = await ask(f"{url}/v2/topics")
        assert (status, answer["error"]) == (503, "UNAVAILABLE")
        assert "the broker does not answer at http://127.0.0.1:" in answer["message"]
        assert "Connection refused" in answer["message"]
        assert "start it with `slipstream serve`" in answer["message"]
        assert (answer["request_id"], headers["Retry-After"]) == (headers["X-Request-Id"], "1")
    await forwarder.close()


@in_loop
async def test_one_who_hangs_up_without_an_answer_is_a_bad_gateway() -> None:
    async with between() as (_, _, url):
        status, answer, _ = await ask(f"{url}/cut")
        assert (status, answer["error"]) == (502, "BAD_GATEWAY")
        assert "broke off before it answered" in answer["message"]


@in_loop
async def test_headers_of_our_own_take_the_place_of_what_came() -> None:
    async with between(headers={"Authorization": "Bearer ours"}) as (_, _, url):
        _, said, _ = await ask(f"{url}/operators/jobs", headers={"Authorization": "Bearer of-a-browser"})
        assert [value for name, value in said["headers"] if name == "authorization"] == ["Bearer ours"]


@in_loop
async def test_what_a_browser_says_to_a_proxy_in_front_stays_here() -> None:
    async with between() as (_, _, url):
        given = {"Authorization": "Basic of-a-browser", "Cookie": "session=7", "X-Mine": "yes"}
        _, said, _ = await ask(f"{url}/operators/jobs", headers=given)
        assert {"authorization", "cookie", "x-mine"} & {name for name, _ in said["headers"]} == {"x-mine"}


def _reword(status: int, body: bytes) -> tuple[str, str] | None:
    return ("NOT_FOUND", "in other words") if status == 404 else None


@pytest.mark.parametrize(("status", "expected"), [(404, "in other words"), (500, None), (200, None)])
def test_errors_are_reworded_where_somebody_knows_how(status: int, expected: str | None) -> None:
    @in_loop
    async def story() -> None:
        async with between(reword=_reword) as (_, _, url):
            found, answer, headers = await ask(f"{url}/?status={status}")
            assert found == status
            if expected is None:
                assert answer["path"] == f"/?status={status}", "as it came"
            else:
                assert answer == {
                    "error": "NOT_FOUND",
                    "message": expected,
                    "request_id": headers["X-Request-Id"],
                }

    story()


@pytest.mark.parametrize("size", [60, 3 << 20])
def test_an_error_that_comes_in_pieces_is_whole(size: int) -> None:
    def reword(status: int, body: bytes) -> tuple[str, str] | None:
        return ("NOT_FOUND", f"{len(body)} bytes") if len(body) < ERROR_BYTES_MAX else None

    async def two_pieces(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: %d\r\n\r\n" % size + b"x" * 20)
        await writer.drain()
        await asyncio.sleep(0.05)  # so that they arrive apart
        writer.write(b"x" * (size - 20))
        await writer.drain()
        writer.close()

    @in_loop
    async def story() -> None:
        async with await asyncio.start_server(two_pieces, "127.0.0.1", 0) as server:
            far = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            forwarder = Forwarder(far, what="the service of jobs", start="slipstream jobs serve", reword=reword)
            async with (
                listening(CommonHeaders(forwarder)) as url,
                aiohttp.ClientSession() as session,
                session.get(url) as answer,
            ):
                body = await answer.read()
                assert answer.status == 404
                if size < ERROR_BYTES_MAX:
                    assert json.loads(body)["message"] == f"{size} bytes"
                else:
                    assert body == b"x" * size, "too long to be said in other words: as it came"
            await forwarder.close()

    story()


@in_loop
async def test_another_path_may_be_asked_for_in_its_place() -> None:
    async with between() as (_, forwarder, _):

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            await forwarder.forward(scope, receive, send, b"/operators/jobs")

        async with listening(app) as url:
            _, said, _ = await ask(f"{url}/v2/jobs?limit=3")
            assert said["path"] == "/operators/jobs?limit=3"
