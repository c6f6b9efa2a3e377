"""What the broker's application says of itself, and to people with a browser."""

from __future__ import annotations

import httpx
import pytest

from slipstream import __version__
from tests.conftest import StartServer
from tests.server_process import ServerProcess


def test_a_browser_is_sent_to_the_page_and_a_program_learns_what_answers(shared: ServerProcess) -> None:
    browser = {"Accept": "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8"}
    answer = shared.get("/", headers=browser, follow_redirects=False)
    assert (answer.status_code, answer.headers["Location"]) == (307, "/console/")
    for accept in ("*/*", "application/json", ""):
        answer = shared.get("/", headers={"Accept": accept}, follow_redirects=False)
        assert answer.status_code == 200
        assert answer.json() == {
            "service": "slipstream",
            "version": __version__,
            "console": "/console/",
            "calls": "/v2/openapi.json",
        }
    assert shared.client.head(f"{shared.base}/").status_code == 200
    page = shared.get("/", headers=browser, follow_redirects=True)
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]


def test_the_server_says_which_it_is(start_server: StartServer) -> None:
    server = start_server("--durability", "interval")
    info = server.get("/v2/server").json()
    assert (info["version"], info["durability"], info["bus"]) == (__version__, "interval", "slipstream")
    assert info["started_ms"] <= info["now_ms"]
    assert info["writable"] is True


def test_it_is_live_and_ready(shared: ServerProcess) -> None:
    assert shared.get("/health/live").json() == {"status": "live"}
    answer = shared.get("/health/ready")
    assert (answer.status_code, answer.json()) == (200, {"status": "ready"})


def test_alone_it_shows_the_broker_and_says_what_to_start_for_the_rest(server: ServerProcess) -> None:
    server.create("orders")
    server.produce("orders", "two books")
    server.take("orders", group="billing")
    deadline_answers = (server.get("/v2/overview").json() for _ in range(10_000))
    answer = next(answer for answer in deadline_answers if answer["overview"]["in_flight"] == 1)
    assert answer["overview"]["topics"][0]["groups"][0]["group"] == "billing"
    assert answer["overview"]["problems"] == []
    assert server.get("/v2/parts").json() == {"parts": []}
    assert server.get("/v2/search?q=billing").json()["hits"][0]["link"] == "#/groups/orders/billing"
    for path, start in (("/v2/slips", "SLIP_STORE"), ("/v2/jobs", "JOBS_URL"), ("/v2/tables", "PIPELINE_TABLES")):
        refused = server.get(path)
        assert refused.status_code == 503
        assert start in refused.json()["message"]


def test_a_stream_of_the_overview_does_not_keep_the_server_from_ending(server: ServerProcess) -> None:
    headers = {"Accept": "text/event-stream"}
    with httpx.stream("GET", server.base + "/v2/overview", headers=headers, timeout=30) as stream:
        lines = stream.iter_lines()
        assert next(line for line in lines if line.startswith("event:")) == "event: history"
        assert server.stop() == 0
        assert "Traceback" not in "".join(server.log)


def test_without_a_console_there_is_none(start_server: StartServer) -> None:
    server = start_server("--no-console")
    assert "console" not in server.get("/", headers={"Accept": "text/html"}, follow_redirects=False).json()
    for path in ("/console/", "/v2/overview", "/v2/parts"):
        answer = server.get(path, headers={"Accept": "text/html"}, follow_redirects=False)
        assert (answer.status_code, answer.json()["error"]) == (404, "NOT_FOUND")
    assert server.get("/v2/server").status_code == 200
    assert server.get("/health/ready").status_code == 200


@pytest.mark.parametrize("path", ["/v2/overview", "/v2/topics", "/console/"])
def test_the_id_of_a_request_comes_back_once(shared: ServerProcess, path: str) -> None:
    answer = shared.get(path, headers={"X-Request-Id": "mine"})
    assert answer.headers.get_list("X-Request-Id") == ["mine"]
