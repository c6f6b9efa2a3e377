"""The messages of a topic: from the newest, an offset or a time, older and newer, and as they come."""

from __future__ import annotations

import datetime as dt
import re
import shlex
from typing import Any

import httpx
import pytest
from playwright.sync_api import Locator, Page, expect

from tests.console.browser.conftest import OpenPage
from tests.server_process import ServerProcess


@pytest.fixture
def log(shared: ServerProcess, topic: str) -> str:
    """A topic of three partitions with 120 messages, `number 0` to `number 119`."""
    name = f"{topic}-log"
    shared.create(name, 3)
    produce(shared, name, range(120))
    return name


def produce(server: ServerProcess, topic: str, numbers: range) -> None:
    messages = [{"key": f"key-{number}", "value": f"number {number}"} for number in numbers]
    answer = server.post("/v2/produce", {"topic": topic, "messages": messages})
    assert answer.status_code == 200, answer.text


def stored(server: ServerProcess, topic: str) -> dict[int, dict[str, Any]]:
    """By offset."""
    pages = [server.get(f"/v2/topics/{topic}/messages?partition={number}").json() for number in range(3)]
    return {each["offset"]: each for page in pages for each in page["messages"]}


def rows(page: Page) -> Locator:
    return page.get_by_role("region", name="messages", exact=True).locator("tbody tr")


def offsets(page: Page) -> list[int]:
    return [int(each.replace(",", "")) for each in rows(page).get_by_role("link").all_inner_texts()]


def test_it_begins_with_the_newest_and_turns_to_the_oldest(
    open_page: OpenPage, shared: ServerProcess, log: str
) -> None:
    page = open_page(shared.base, f"#/topics/{log}")
    seen: list[int] = []
    older = page.get_by_role("button", name="Older")
    for first in (119, 69, 19):
        expect(rows(page).first.get_by_role("link")).to_have_text(str(first))
        seen += offsets(page)
        if first > 50:
            older.click()
    expect(older).to_be_disabled()
    assert seen == list(range(119, -1, -1)), "each once, the newest first, whatever partition it is in"
    page.get_by_role("button", name="Newer").click()
    expect(rows(page).first.get_by_role("link")).to_have_text("69")
    assert offsets(page) == list(range(69, 19, -1))


def test_it_begins_at_an_offset(open_page: OpenPage, shared: ServerProcess, log: str) -> None:
    page = open_page(shared.base, f"#/topics/{log}")
    page.get_by_label("Begin with").select_option("offset")
    page.get_by_role("textbox", name="Offset").fill("33")
    page.get_by_role("button", name="Look").click()
    expect(rows(page).first.get_by_role("link")).to_have_text("33")
    assert offsets(page) == list(range(33, 83))
    page.get_by_role("button", name="Newer").click()
    expect(rows(page).first.get_by_role("link")).to_have_text("83")
    assert offsets(page) == list(range(83, 120))
    expect(page).to_have_url(re.compile("offset=33"))


def test_one_partition_is_looked_at_alone(open_page: OpenPage, shared: ServerProcess, log: str) -> None:
    page = open_page(shared.base, f"#/topics/{log}?partition=1&offset=0")
    expect(page.get_by_role("combobox", name="Partition")).to_have_value("1")
    expect(rows(page).first).to_be_visible()
    expected = [offset for offset, each in sorted(stored(shared, log).items()) if each["partition"] == 1]
    assert offsets(page) == expected[:50]


def test_it_begins_at_a_time(open_page: OpenPage, shared: ServerProcess, log: str) -> None:
    newest_ms = max(each["timestamp_ms"] for each in stored(shared, log).values())
    while dt.datetime.now(dt.UTC).timestamp() * 1000 <= newest_ms + 1:
        pass
    produce(shared, log, range(120, 125))
    time = dt.datetime.fromtimestamp((newest_ms + 1) / 1000, dt.UTC)
    page = open_page(shared.base, f"#/topics/{log}")
    page.get_by_label("Begin with").select_option("time")
    page.get_by_label("Time, UTC").fill(f"{time:%Y-%m-%d %H:%M:%S}.{time.microsecond // 1000:03d}")
    page.get_by_role("button", name="Look").click()
    expect(rows(page).first.get_by_role("link")).to_have_text("120")
    assert offsets(page) == list(range(120, 125))
    page.get_by_role("button", name="Older").click()
    expect(rows(page).first.get_by_role("link")).to_have_text("70")
    assert offsets(page) == list(range(70, 120))


def test_a_time_that_is_none_is_said(open_page: OpenPage, shared: ServerProcess, log: str) -> None:
    page = open_page(shared.base, f"#/topics/{log}")
    page.get_by_label("Begin with").select_option("time")
    page.get_by_label("Time, UTC").fill("yesterday")
    page.get_by_role("button", name="Look").click()
    expect(page.get_by_role("alert")).to_contain_text("“yesterday” is no time: type 2026-11-18 02:24 (UTC)")
    page.get_by_label("Time, UTC").fill("1h")
    page.get_by_label("Time, UTC").press("Enter")
    expect(rows(page).first.get_by_role("link")).to_have_text("0")
    expect(page.get_by_role("alert")).to_have_count(0)


def test_it_follows_what_is_stored(open_page: OpenPage, shared: ServerProcess, log: str) -> None:
    page = open_page(shared.base, f"#/topics/{log}")
    page.get_by_label("Begin with").select_option("offset")
    page.get_by_role("button", name="Look").click()
    expect(rows(page).first.get_by_role("link")).to_have_text("0")
    page.get_by_role("button", name="Follow").click()
    expect(page.get_by_text("following ·")).to_be_visible()
    expect(page.get_by_label("Begin with")).to_have_value("newest")
    for number in (120, 121):
        produce(shared, log, range(number, number + 1))
        expect(rows(page).first).to_contain_text(f"number {number}")
    page.get_by_role("button", name="Stop following").click()
    expect(page.get_by_text("following ·")).to_have_count(0)
    assert offsets(page)[:3] == [121, 120, 119]


def test_a_row_opens_the_message_with_all_that_travels_with_it(
    open_page: OpenPage, shared: ServerProcess, topic: str
) -> None:
    message = {
        "key": "user:1",
        "value": "two books",
        "attributes": {"traceparent": "00-4bf9"},
        "envelope": {"tenant_id": "acme", "run_id": "run-7", "labels": {"priority": "high"}},
    }
    assert shared.post("/v2/produce", {"topic": topic, "messages": [message]}).status_code == 200
    page = open_page(shared.base, f"#/topics/{topic}")
    rows(page).first.click()
    opened = page.get_by_role("complementary", name=f"{topic}/0/0")
    for words in ("user:1", "two books", "traceparent", "00-4bf9", "acme", "run-7", "priority", "high"):
        expect(opened).to_contain_text(words)


def test_what_is_copied_as_curl_gets_the_message(open_page: OpenPage, shared: ServerProcess, log: str) -> None:
    page = open_page(shared.base, f"#/topics/{log}")
    rows(page).first.click()
    page.get_by_role("button", name="Copy as curl").click()
    expect(page.get_by_text("copied")).to_be_visible()
    _, _, url = shlex.split(page.evaluate("navigator.clipboard.readText()"))
    assert httpx.get(url, timeout=30).json()["messages"][0]["value"] == "number 119"


def test_an_address_opens_exactly_that_message(open_page: OpenPage, shared: ServerProcess, log: str) -> None:
    messages = stored(shared, log)
    here = messages[60]["partition"]
    page = open_page(shared.base, f"#/topics/{log}/{here}/60")
    expect(page.get_by_label("the body as Text")).to_have_text("number 60")
    after = next(offset for offset in range(61, 120) if messages[offset]["partition"] == here)
    page.get_by_role("link", name="The one after").click()
    expect(page.get_by_label("the body as Text")).to_have_text(f"number {after}")
    page.get_by_role("link", name="The one before").click()
    expect(page.get_by_label("the body as Text")).to_have_text("number 60")


def test_an_address_of_no_message_says_why(open_page: OpenPage, shared: ServerProcess, log: str) -> None:
    elsewhere = (stored(shared, log)[60]["partition"] + 1) % 3
    page = open_page(shared.base, f"#/topics/{log}/{elsewhere}/60")
    expect(page.get_by_text("has no message with offset 60")).to_be_visible()


def test_large_messages_are_all_there(open_page: OpenPage, shared: ServerProcess, topic: str) -> None:
    """An answer ends where it grows too large, which must not take the newest away."""
    for number in range(9):
        value = f"{number} " + "x" * 900_000
        assert shared.post("/v2/produce", {"topic": topic, "messages": [{"value": value}]}).status_code == 200
    page = open_page(shared.base, f"#/topics/{topic}")
    expect(rows(page).first.get_by_role("link")).to_have_text("8")
    assert offsets(page) == list(range(8, -1, -1))


def test_of_very_many_partitions_it_says_what_is_left_out(
    open_page: OpenPage, shared: ServerProcess, topic: str
) -> None:
    wide = f"{topic}-wide"
    shared.create(wide, 70)
    messages = [{"value": f"in {number}", "envelope": {"partition_override": number}} for number in range(70)]
    assert shared.post("/v2/produce", {"topic": wide, "messages": messages}).status_code == 200
    page = open_page(shared.base, f"#/topics/{wide}")
    expect(page.get_by_text("Of 70 partitions with messages the first 64 are looked at")).to_be_visible()
    expect(rows(page).first.get_by_role("link")).to_have_text("63")
    page.get_by_role("combobox", name="Partition").select_option("69")
    expect(rows(page)).to_have_count(1)
    expect(rows(page)).to_contain_text("in 69")
