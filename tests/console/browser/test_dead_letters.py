"""Dead letters as a person on call uses them: what did they die of, and sending them back."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.console.browser.conftest import PHONE, OpenPage, is_wider_than_its_window
from tests.server_process import ServerProcess

TIMED_OUT = 12
UNKNOWN = 3


@pytest.fixture
def dead(shared: ServerProcess, topic: str) -> str:
    """Twelve dead letters of one cause and three of another, of group `billing`."""
    kill(shared, topic, [f"the bank timed out after {number * 7} ms" for number in range(TIMED_OUT)])
    kill(shared, topic, [f"no such customer: C-{number}" for number in range(UNKNOWN)])
    return topic


def kill(server: ServerProcess, topic: str, reasons: list[str]) -> None:
    values = [{"value": f'{{"order": {number}}}', "key": f"user:{number}"} for number in range(len(reasons))]
    assert server.post("/v2/produce", {"topic": topic, "messages": values}).status_code == 200
    who = {"topic": topic, "group": "billing", "owner": "w1"}
    taken = server.post("/v2/fetch", {**who, "max_messages": len(reasons)}).json()["messages"]
    nacks = [
        {"partition": each["partition"], "offset": each["offset"], "reason": reason, "retryable": False}
        for each, reason in zip(taken, reasons, strict=True)
    ]
    assert server.post("/v2/nack", {**who, "messages": nacks}).json()["nacked"] == len(reasons)


def letters(server: ServerProcess, topic: str, **filters: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = server.get("/v2/dead-letters", params={"topic": topic, **filters}).json()[
        "dead_letters"
    ]
    return found


def causes(page: Page) -> Locator:
    return page.get_by_role("region", name="causes", exact=True).locator("tbody tr")


def listed(page: Page) -> Locator:
    return page.get_by_role("region", name="dead letters", exact=True).locator("tbody tr")


def redriven(page: Page, topic: str) -> Locator:
    """The row of its redrive: the server has those of others, too. What is done is stored as well."""
    rows = page.get_by_role("region", name="redrives", exact=True).locator("tbody tr")
    return rows.filter(has=page.get_by_role("link", name=topic, exact=True))


def test_they_are_grouped_by_what_they_died_of(open_page: OpenPage, shared: ServerProcess, dead: str) -> None:
    page = open_page(shared.base, f"#/dead-letters?topic={dead}")
    expect(causes(page)).to_have_count(2)
    expect(causes(page).first).to_contain_text(re.compile("^12.*rejected.*the bank timed out after # ms"))
    expect(causes(page).last).to_contain_text(re.compile("^3.*rejected.*no such customer: C-#"))
    expect(listed(page)).to_have_count(TIMED_OUT + UNKNOWN)
    page.get_by_role("button", name="no such customer: C-#").click()
    expect(listed(page)).to_have_count(UNKNOWN)
    page.get_by_role("button", name="show all").click()
    expect(listed(page)).to_have_count(TIMED_OUT + UNKNOWN)


def test_filters_choose_and_stay_in_the_address(open_page: OpenPage, shared: ServerProcess, dead: str) -> None:
    page = open_page(shared.base, f"#/dead-letters?topic={dead}")
    page.get_by_label("Error has").fill("CUSTOMER")
    page.get_by_label("Error has").press("Enter")
    expect(listed(page)).to_have_count(UNKNOWN)
    page.reload()
    expect(listed(page)).to_have_count(UNKNOWN)
    page.get_by_label("Group").fill("nobody")
    page.get_by_label("Group").press("Enter")
    expect(page.get_by_text("No dead letter fits these choices.")).to_be_visible()
    page.get_by_label("Group").fill("billing")
    page.get_by_label("Group").press("Enter")
    expect(listed(page)).to_have_count(UNKNOWN)
    page.get_by_label("Died since").fill("soon")
    page.get_by_label("Died since").press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("“soon” is no time")
    page.get_by_label("Died since").fill("1h")
    page.get_by_label("Died since").press("Enter")
    expect(listed(page)).to_have_count(UNKNOWN)
    page.get_by_label("and before").fill("1h")
    page.get_by_label("and before").press("Enter")
    expect(page.get_by_text("No dead letter fits these choices.")).to_be_visible()


def test_one_tells_its_whole_story_and_is_sent_back(open_page: OpenPage, shared: ServerProcess, dead: str) -> None:
    (first, *_) = letters(shared, dead)
    page = open_page(shared.base, f"#/dead-letters?topic={dead}")
    listed(page).last.click()
    opened = page.get_by_role("complementary", name=f"dlq.{dead}/0/{first['offset']}")
    expect(opened).to_contain_text("at attempt 1 its consumer said that no further would help")
    expect(opened).to_contain_text("the bank timed out after 0 ms")
    expect(opened.get_by_label("the body as JSON")).to_contain_text('"order": 0')
    expect(opened.get_by_role("link", name=f"{dead}/0/0", exact=True)).to_be_visible()
    opened.get_by_role("button", name="Redrive this one").click()
    expect(page.get_by_role("dialog")).to_contain_text(f"This dead letter: 1 message: 1 of {dead}.")
    expect(page.get_by_label("Delivered to")).to_have_value("failed")
    page.get_by_role("button", name="Redrive 1", exact=True).click()
    expect(listed(page)).to_have_count(TIMED_OUT + UNKNOWN - 1)
    expect(redriven(page, dead)).to_contain_text("done")
    (back,) = letters(shared, dead, redriven="true")
    assert back["offset"] == first["offset"]
    newest = shared.get(f"/v2/topics/{dead}/messages?last=1").json()["messages"][0]
    assert newest["redriven_from"] == f"dlq.{dead}/0/{first['offset']}"
    assert newest["only_group"] == first["envelope"]["dlq"]["group"]


def test_the_attempts_of_one_are_rows_with_tracebacks(open_page: OpenPage, shared: ServerProcess, topic: str) -> None:
    policy = {"retry_policy": {"max_attempts": 2}}
    shared.post("/v2/produce", {"topic": topic, "messages": [{"value": "a", "envelope": policy}]})
    for number in (1, 2):
        who = {"topic": topic, "group": "billing", "owner": f"worker-{number}"}
        (taken,) = shared.post("/v2/fetch", {**who, "wait_ms": 10_000}).json()["messages"]
        place = {"partition": taken["partition"], "offset": taken["offset"]}
        failed = {**place, "reason": f"error {number}", "traceback": f"File shop.py, line {number}"}
        shared.post("/v2/nack", {**who, "messages": [failed]})
    page = open_page(shared.base, f"#/dead-letters?topic={topic}")
    listed(page).first.click()
    rows = page.get_by_role("region", name="attempts", exact=True).locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text(re.compile("worker-1.*error 1"))
    expect(rows.last).to_contain_text(re.compile("worker-2.*error 2"))
    page.get_by_text("Traceback of attempt 2").click()
    expect(page.get_by_text("File shop.py, line 2")).to_be_visible()
    page.goto(f"{page.url.partition('#')[0]}#/dead-letters/dlq.{topic}/0/0")
    expect(rows).to_have_count(2)


def test_a_redrive_for_every_group_says_what_that_means(open_page: OpenPage, shared: ServerProcess, dead: str) -> None:
    page = open_page(shared.base, f"#/dead-letters?topic={dead}&error=timed")
    page.get_by_role("button", name="Redrive all of these").click()
    asked = page.get_by_role("dialog")
    page.get_by_label("Delivered to").select_option("all")
    expect(asked.get_by_role("status")).to_contain_text("Groups that had finished the original get it a second time.")
    asked.get_by_role("button", name=f"Redrive {TIMED_OUT}").click()
    expect(redriven(page, dead)).to_contain_text(re.compile("every group.*done"))
    newest = shared.get(f"/v2/topics/{dead}/messages?last=1").json()["messages"][0]
    assert "only_group" not in newest


def test_a_group_that_is_gone_gets_nothing_and_the_dialog_says_so(
    open_page: OpenPage, shared: ServerProcess, dead: str
) -> None:
    group = letters(shared, dead)[0]["envelope"]["dlq"]["group"]
    shared.request("DELETE", f"/v2/topics/{dead}/groups/{group}")
    page = open_page(shared.base, f"#/dead-letters?topic={dead}&error=timed")
    page.get_by_role("button", name="Redrive all of these").click()
    asked = page.get_by_role("dialog")
    expect(asked.get_by_role("status")).to_contain_text("the group they failed for no longer exists")
    asked.get_by_role("button", name=f"Redrive {TIMED_OUT}").click()
    expect(page.get_by_role("alert")).to_contain_text("choose every group, or another topic")
    page.get_by_label("Delivered to").select_option("all")
    asked.get_by_role("button", name=f"Redrive {TIMED_OUT}").click()
    expect(redriven(page, dead)).to_contain_text("done")


def test_all_of_a_cause_are_sent_to_another_topic(open_page: OpenPage, shared: ServerProcess, dead: str) -> None:
    shared.create(f"{dead}.retry")
    page = open_page(shared.base, f"#/dead-letters?topic={dead}")
    page.get_by_role("button", name=f"Redrive {UNKNOWN}", exact=True).click()
    page.get_by_label("To another topic").fill(f"{dead}.retry")
    page.get_by_role("dialog").get_by_role("button", name=f"Redrive {UNKNOWN}").click()
    expect(causes(page)).to_have_count(1)
    expect(redriven(page, dead)).to_contain_text(re.compile(f"{dead}.retry.*done"))
    values = shared.get(f"/v2/topics/{dead}.retry/messages").json()["messages"]
    assert len(values) == UNKNOWN
    assert {each["envelope"]["dlq"]["last_error"] for each in letters(shared, dead, redriven="true")} == {
        f"no such customer: C-{number}" for number in range(UNKNOWN)
    }


def test_a_topic_that_is_none_is_refused_in_the_dialog(
    open_page: OpenPage, shared: ServerProcess, dead: str, tolerate: list[str]
) -> None:
    tolerate.append("404")
    page = open_page(shared.base, f"#/dead-letters?topic={dead}")
    page.get_by_role("button", name="Redrive all of these").click()
    page.get_by_label("To another topic").fill("no-such-topic")
    page.get_by_role("dialog").get_by_role("button", name="Redrive 15").click()
    expect(page.get_by_role("alert")).to_contain_text("topic does not exist")
    expect(page.get_by_role("alert")).to_contain_text("request c-")
    assert letters(shared, dead, redriven="true") == []


def test_a_slow_redrive_is_watched_and_cancelled(open_page: OpenPage, shared: ServerProcess, dead: str) -> None:
    page = open_page(shared.base, f"#/dead-letters?topic={dead}&error=timed")
    page.get_by_role("button", name="Redrive all of these").click()
    asked = page.get_by_role("dialog")
    expect(asked).to_contain_text("Redrive 12 dead letters")
    page.get_by_label("Messages a second").fill("0.5")
    expect(asked.get_by_role("status")).to_contain_text("It takes about 24 s.")
    asked.get_by_role("button", name="Redrive 12").click()
    row = redriven(page, dead)
    expect(row).to_contain_text("running")
    expect(row).to_contain_text(re.compile("[1-9] of 12"))
    row.get_by_role("button", name="Cancel").click()
    expect(row).to_contain_text("cancelled")
    sent = len(letters(shared, dead, redriven="true"))
    assert 0 < sent < TIMED_OUT
    expect(row).to_contain_text(f"{sent} of 12")


def test_what_was_sent_back_can_be_seen(open_page: OpenPage, shared: ServerProcess, dead: str) -> None:
    page = open_page(shared.base, f"#/dead-letters?topic={dead}")
    page.get_by_role("button", name="Redrive all of these").click()
    page.get_by_role("dialog").get_by_role("button", name="Redrive 15").click()
    expect(page.get_by_text("No dead letter fits these choices.")).to_be_visible()
    page.get_by_label("Show").select_option("sent back")
    expect(listed(page)).to_have_count(TIMED_OUT + UNKNOWN)
    expect(page.get_by_role("button", name="Redrive all of these")).to_have_count(0)
    page.reload()
    expect(listed(page)).to_have_count(TIMED_OUT + UNKNOWN)


def test_an_address_opens_exactly_that_one(open_page: OpenPage, shared: ServerProcess, dead: str) -> None:
    place = letters(shared, dead)[3]["offset"]
    page = open_page(shared.base, f"#/dead-letters/dlq.{dead}/0/{place}")
    expect(page.get_by_text("the bank timed out after 21 ms")).to_be_visible()
    page.get_by_role("button", name="Redrive this one").click()
    page.get_by_role("button", name="Redrive 1", exact=True).click()
    expect(page.get_by_text("sent back", exact=True)).to_be_visible()
    assert [each["offset"] for each in letters(shared, dead, redriven="true")] == [place]


def test_more_that_die_are_shown_without_asking(open_page: OpenPage, shared: ServerProcess, dead: str) -> None:
    page = open_page(shared.base, f"#/dead-letters?topic={dead}")
    expect(causes(page)).to_have_count(2)
    kill(shared, dead, ["the printer is on fire"])
    expect(page.get_by_role("button", name="the printer is on fire")).to_be_visible()


def test_a_phone_shows_them_without_scrolling_sideways(open_page: OpenPage, shared: ServerProcess, dead: str) -> None:
    page = open_page(shared.base, f"#/dead-letters?topic={dead}", size=PHONE)
    expect(listed(page).first).to_be_visible()
    assert not is_wider_than_its_window(page)
    listed(page).first.click()
    expect(page.get_by_role("complementary")).to_be_visible()
    expect(listed(page).first).to_be_hidden()
    assert not is_wider_than_its_window(page)
    page.get_by_role("button", name="Close the dead letter").click()
    expect(listed(page).first).to_be_visible()
