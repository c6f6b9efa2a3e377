"""Which call is answered by whom, and what is said where something is missing."""

from __future__ import annotations

import io
import re

import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from slipstream.console import FarConsole, Forwarder, Sources, create_console
from slipstream.console.answers import BODY_BYTES_MAX, Refused, json_answer, read_json
from slipstream.console.sources import Noun
from slipstream.server.v2.endpoints import CONSOLE
from tests.bus.sites.site import free_port
from tests.client.loop import in_loop
from tests.console.site import Numbers, ask, listening, stats


@pytest.mark.parametrize(
    ("method", "path", "start"),
    [
        ("GET", "/v2/slips", "SLIP_STORE"),
        ("GET", "/v2/slips/c-1/left", "SLIP_STORE"),
        ("POST", "/v2/slips/c-1/signals", "SLIP_STORE"),
        ("PUT", "/v2/steps/charge/pause", "SLIP_STORE"),
        ("GET", "/v2/jobs", "JOBS_URL"),
        ("GET", "/v2/jobs/j-1/logs", "JOBS_URL"),
        ("POST", "/v2/job-replays", "JOBS_URL"),
        ("POST", "/v2/decoded", "JOBS_URL"),
        ("GET", "/v2/tables", "PIPELINE_TABLES"),
        ("POST", "/v2/tables/query", "PIPELINE_TABLES"),
        ("GET", "/console/report", "PIPELINE_TABLES"),
    ],
)
def test_what_is_missing_is_said_with_what_to_start(method: str, path: str, start: str) -> None:
    @in_loop
    async def story() -> None:
        async with listening(create_console(Sources(Numbers()))) as url:
            status, answer, _ = await ask(url + path, method)
            assert (status, answer["error"]) == (503, "UNAVAILABLE")
            assert start in answer["message"]
            assert "--console-url" in answer["message"]

    story()


@in_loop
async def test_every_call_that_is_documented_is_answered() -> None:
    """By somebody: none of them is unknown, whatever is missing."""
    numbers = Numbers()
    console = create_console(Sources(numbers))
    await console.open()
    await numbers.told.put(stats())
    async with listening(console) as url:
        for endpoint in CONSOLE:
            status, answer, _ = await ask(url + re.sub(r"{.*?}", "x", endpoint.path), endpoint.method)
            assert status in {200, 400, 503}, f"{endpoint.method} {endpoint.path}: {answer}"
    await console.close()


@in_loop
async def test_what_is_none_of_its_calls_is_said_or_handed_on() -> None:
    async with listening(create_console(Sources(Numbers()))) as url:
        status, answer, headers = await ask(f"{url}/v2/topics")
        assert (status, answer["error"]) == (404, "NOT_FOUND")
        assert answer["request_id"] == headers["X-Request-Id"]
        status, answer, headers = await ask(f"{url}/v2/overview", "DELETE")
        assert (status, answer["error"]) == (405, "METHOD_NOT_ALLOWED")
        assert "GET" in headers["Allow"]

    class Rest:
        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            await json_answer({"path": scope["path"]})(scope, receive, send)

        def stop(self) -> None:
            pass

        async def close(self) -> None:
            pass

    async with listening(create_console(Sources(Numbers(), rest=Rest()))) as url:
        for path in ("/v2/topics", "/v1/produce", "/v2/topics/a/groups/b"):
            assert (await ask(url + path))[1] == {"path": path}
        assert (await ask(f"{url}/elsewhere"))[0] == 404


class Odd(Noun):
    what = "odd"
    link = "#/"

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/v2/bug", self.bug),
            Route("/v2/echo", self.echo, methods=["POST"]),
            Route("/v2/busy", self.busy),
        ]

    async def bug(self, request: Request) -> Response:
        raise KeyError("a mistake of ours")

    async def echo(self, request: Request) -> Response:
        return json_answer(await read_json(request, dict[str, int]))

    async def busy(self, request: Request) -> Response:
        raise Refused("RESOURCE_EXHAUSTED", "one at a time", retry_after_s=0.2)


@in_loop
async def test_errors_have_one_shape() -> None:
    async with listening(create_console(Sources(Numbers(), more=[Odd()]))) as url:
        status, answer, _ = await ask(f"{url}/v2/bug")
        assert (status, answer["error"]) == (500, "INTERNAL")
        assert "mistake of ours" not in str(answer), "that is for the log"
        status, answer, headers = await ask(f"{url}/v2/busy")
        assert (status, answer["error"], headers["Retry-After"]) == (429, "RESOURCE_EXHAUSTED", "1")
        assert set(answer) == {"error", "message", "request_id"}


@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        (b'{"a": 1}', 200, None),
        (b"", 200, None),
        (b'{"a": "one"}', 400, "INVALID_ARGUMENT"),
        (b'{"a"', 400, "INVALID_ARGUMENT"),
        (b"\xff\xfe", 400, "INVALID_ARGUMENT"),
        (b"[" * 100_000, 400, "INVALID_ARGUMENT"),
        (b" " * (BODY_BYTES_MAX + 1), 413, "PAYLOAD_TOO_LARGE"),
    ],
    ids=["good", "empty", "of another kind", "torn", "no text", "deep", "large"],
)
def test_a_body_that_cannot_be_used_is_refused(body: bytes, status: int, error: str | None) -> None:
    @in_loop
    async def story() -> None:
        async with listening(create_console(Sources(Numbers(), more=[Odd()]))) as url:
            found, answer, _ = await ask(f"{url}/v2/echo", "POST", data=io.BytesIO(body))
            assert (found, answer.get("error")) == (status, error)

    story()


@in_loop
async def test_a_far_console_has_the_page_here_and_the_calls_there() -> None:
    numbers = Numbers()
    there = create_console(Sources(numbers))
    await there.open()
    await numbers.told.put(stats(in_flight=7))
    async with listening(there) as far:
        here = FarConsole(Forwarder(far, what="the console", start="slipstream console"))
        async with listening(here) as url:
            _, answer, headers = await ask(f"{url}/v2/overview")
            assert answer["overview"]["in_flight"] == 7
            assert headers["X-Request-Id"]
            status, _, _ = await ask(f"{url}/v2/slips/x/signals", "POST", headers={"Origin": url}, json={"step": "s"})
            assert status == 503, "the page that came from here may act there"
        await here.close()
    await there.close()


@in_loop
async def test_broker_and_console_do_not_pass_a_request_to_each_other_without_end() -> None:
    port = free_port()
    there = create_console(Sources(Numbers(), rest=Forwarder(f"127.0.0.1:{port}", what="the broker", start="serve")))
    async with listening(there) as far:
        here = FarConsole(Forwarder(far, what="the console", start="slipstream console"))
        async with listening(here, port) as url:
            for base in (url, far):
                status, _, headers = await ask(f"{base}/v2/acknowledgements")
                assert (status, headers["Allow"]) == (405, "DELETE, POST")
                assert (await ask(f"{base}/v2/overview", "PATCH"))[0] == 405
                assert (await ask(f"{base}/v2/nowhere"))[0] == 404
        await here.close()
    await there.close()


@in_loop
async def test_the_page_of_a_far_console_is_there_while_that_is_away() -> None:
    here = FarConsole(Forwarder(f"127.0.0.1:{free_port()}", what="the console", start="slipstream console"))
    async with listening(here) as url:
        status, answer, _ = await ask(f"{url}/v2/overview")
        assert status == 503
        assert "start it with `slipstream console`" in answer["message"]
        status, _, _ = await ask(f"{url}/console/", "HEAD")
        assert status == 200
    await here.close()
