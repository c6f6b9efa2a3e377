"""What a message carries: the best way to show it is found, and the others are a click away."""

from __future__ import annotations

import base64
import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from tests.console.browser.conftest import OpenPage
from tests.console.browser.site import Site
from tests.program import Program
from tests.server_process import ServerProcess

TASKS = "fetchbox.jobs.tasks"


@pytest.fixture
def console(shared: ServerProcess, topic: str) -> Iterator[str]:
    """The console in a process of its own, which knows of jobs, theirs in the namespace of the test's topic."""
    environment = os.environ | {"SLIPSTREAM_URL": shared.base, "JOBS_NAMESPACE": topic}
    program = Program([sys.executable, "-m", "slipstream", "console", "--port", "0"], environment)
    yield program.wait_for(r"(http://127\.0\.0\.1:\d+)")[1]
    program.kill()


def opened(open_page: OpenPage, server: ServerProcess, topic: str, base: str = "", **message: Any) -> Page:
    answer = server.post("/v2/produce", {"topic": topic, "messages": [message]})
    assert answer.status_code == 200, answer.text
    place = answer.json()["messages"][0]
    return open_page(base or server.base, f"#/topics/{topic}/{place['partition']}/{place['offset']}")


def test_json_is_shown_in_lines_and_as_it_was_sent(open_page: OpenPage, shared: ServerProcess, topic: str) -> None:
    page = opened(open_page, shared, topic, value='{"id": 12345678901234567890, "list": [1, {}], "text": "a, b: {c}"}')
    expect(page.get_by_role("button", name="JSON")).to_have_attribute("aria-pressed", "true")
    assert page.get_by_label("the body as JSON").inner_text().splitlines() == [
        "{",
        '  "id": 12345678901234567890,',
        '  "list": [',
        "    1,",
        "    {}",
        "  ],",
        '  "text": "a, b: {c}"',
        "}",
    ]
    page.get_by_role("button", name="Text").click()
    expect(page.get_by_label("the body as Text")).to_have_text(
        '{"id": 12345678901234567890, "list": [1, {}], "text": "a, b: {c}"}'
    )
    page.get_by_role("button", name="Bytes").click()
    expect(page.get_by_label("the body as Bytes")).to_contain_text(
        '00000000  7b 22 69 64 22 3a 20 31  32 33 34 35 36 37 38 39  |{"id": 123456789|'
    )


def test_bytes_and_their_text_have_room_on_a_phone(open_page: OpenPage, shared: ServerProcess, topic: str) -> None:
    page = opened(open_page, shared, topic, value='{"id": 123456789}')
    page.set_viewport_size({"width": 390, "height": 844})
    page.get_by_role("button", name="Bytes").click()
    body = page.get_by_label("the body as Bytes")
    expect(body).to_contain_text('0000  7b 22 69 64 22 3a 20 31  |{"id": 1|')
    assert body.evaluate("pre => pre.scrollWidth <= pre.clientWidth")


def test_markup_in_a_message_is_text(open_page: OpenPage, shared: ServerProcess, topic: str) -> None:
    page = opened(open_page, shared, topic, value="<img src=x onerror=alert(1)><b>bold</b>", key="<i>key</i>")
    expect(page.get_by_label("the body as Text")).to_have_text("<img src=x onerror=alert(1)><b>bold</b>")
    expect(page.locator("main b, main img, main i")).to_have_count(0)


def test_what_is_no_text_is_shown_as_bytes(open_page: OpenPage, shared: ServerProcess, topic: str) -> None:
    value = base64.b64encode(bytes(range(0, 256, 8))).decode()
    page = opened(open_page, shared, topic, value=value, encoding="base64")
    expect(page.get_by_role("button", name="Bytes")).to_have_attribute("aria-pressed", "true")
    expect(page.get_by_label("the body as Bytes")).to_contain_text(
        "00000010  80 88 90 98 a0 a8 b0 b8  c0 c8 d0 d8 e0 e8 f0 f8  |................|"
    )
    expect(page.get_by_role("button", name="Text")).to_have_count(0)


def test_an_empty_body_says_so(open_page: OpenPage, shared: ServerProcess, topic: str) -> None:
    page = opened(open_page, shared, topic, value="")
    expect(page.get_by_text("The body is empty: 0 bytes.")).to_be_visible()


def test_a_large_body_is_cut_until_all_of_it_is_wanted(open_page: OpenPage, shared: ServerProcess, topic: str) -> None:
    page = opened(open_page, shared, topic, value="word " * 40_000 + "the end")
    expect(page.get_by_text("Cut here: only the start of 195 KiB is shown.")).to_be_visible()
    expect(page.get_by_label("the body as Text")).not_to_contain_text("the end")
    page.get_by_role("button", name="Show all of it").click()
    expect(page.get_by_label("the body as Text")).to_contain_text("the end")
    expect(page.get_by_text("Cut here")).to_have_count(0)


def test_protobuf_of_download_jobs_is_decoded(open_page: OpenPage, site: Site) -> None:
    site.job({"photo-3": "/ok/120"})
    page = open_page(site.base, f"#/topics/{TASKS}")
    page.get_by_role("region", name="messages", exact=True).locator("tbody tr").first.click()
    body = page.get_by_label("the body as Protobuf")
    expect(body).to_contain_text("photo-3")
    expect(page.get_by_role("heading", name="DownloadTask")).to_be_visible()
    page.get_by_role("button", name="Bytes").click()
    expect(page.get_by_label("the body as Bytes")).to_contain_text("0000  0a 24")


def test_a_page_that_is_drawn_again_meanwhile_still_shows_what_was_decoded(open_page: OpenPage, site: Site) -> None:
    site.job({"photo-4": "/ok/120"})
    page = open_page(site.base, f"#/topics/{TASKS}")
    held: list[Route] = []
    page.route("**/v2/decoded", lambda route: held.append(route))  # noqa: PLW0108 - a built-in takes no mark of Playwright
    with page.expect_request("**/v2/decoded"):
        page.get_by_role("region", name="messages", exact=True).locator("tbody tr").first.click()
    page.evaluate("const shown = document.querySelector('message-body'); shown.data = { ...shown.data }")
    expect(page.get_by_label("the body as Bytes")).to_be_visible()
    (request,) = held
    request.continue_()
    expect(page.get_by_label("the body as Protobuf")).to_contain_text("photo-4")


def test_protobuf_that_is_none_is_shown_as_bytes(
    console: str, open_page: OpenPage, shared: ServerProcess, topic: str, tolerate: list[str]
) -> None:
    tolerate.append("/v2/decoded")
    shared.create(f"{topic}.jobs.tasks")
    value = base64.b64encode(b"\xff" * 20).decode()
    page = opened(open_page, shared, f"{topic}.jobs.tasks", base=console, value=value, encoding="base64")
    expect(page.get_by_label("the body as Bytes")).to_contain_text("ff ff")
    page.get_by_role("button", name="Protobuf").click()
    expect(page.locator("message-body .empty")).to_contain_text("DownloadTask")
