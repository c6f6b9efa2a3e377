"""Groups as a person on call uses them: who is behind, what is in flight, and moving them."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.console.browser.conftest import PHONE, OpenPage, is_wider_than_its_window
from tests.server_process import ServerProcess


@pytest.fixture
def busy(shared: ServerProcess, topic: str) -> str:
    """Ten messages; `billing` has finished four and holds one."""
    for number in range(10):
        shared.produce(topic, f"message {number}")
    finished = fetch(shared, topic, "worker-1", 4)
    places = [{"partition": each["partition"], "offset": each["offset"]} for each in finished]
    who = {"topic": topic, "group": "billing", "owner": "worker-1"}
    assert shared.post("/v2/ack", {**who, "messages": places}).json()["acked"] == 4
    fetch(shared, topic, "worker-7", 1)
    return topic


def fetch(server: ServerProcess, topic: str, owner: str, number: int, lease_ms: int = 600_000) -> list[dict[str, Any]]:
    body = {"topic": topic, "group": "billing", "owner": owner, "max_messages": number, "lease_ms": lease_ms}
    messages: list[dict[str, Any]] = server.post("/v2/fetch", body).json()["messages"]
    assert len(messages) == number
    return messages


def state(server: ServerProcess, topic: str, group: str = "billing") -> dict[str, Any]:
    found: dict[str, Any] = server.get(f"/v2/topics/{topic}/groups/{group}").json()
    return found


def seek(page: Page, group: str) -> None:
    page.get_by_label(f"Type {group} to go on").fill(group)
    page.get_by_role("dialog").get_by_role("button", name="Seek").click()
    expect(page.get_by_role("dialog")).to_have_count(0)


def action(page: Page, label: str, place: str) -> None:
    page.get_by_role("button", name=f"{label} {place}", exact=True).click()


def confirm(page: Page, label: str) -> None:
    page.get_by_role("dialog").get_by_role("button", name=label, exact=True).click()
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_one_message_is_helped_from_the_list_of_what_is_in_flight(
    open_page: OpenPage, shared: ServerProcess, busy: str
) -> None:
    who = {"topic": busy, "group": "billing", "owner": "worker-7"}
    failed = {"partition": 0, "offset": 4, "reason": "boom", "delay_ms": 3_600_000, "traceback": "File shop.py"}
    shared.post("/v2/nack", {**who, "messages": [failed]})
    page = open_page(shared.base, f"#/groups/{busy}/billing")
    action(page, "Attempts", "0/4")
    expect(page.get_by_role("dialog")).to_contain_text("worker-7")
    expect(page.get_by_role("dialog")).to_contain_text("boom")
    confirm(page, "Close")
    action(page, "Retry now", "0/4")
    rows = page.get_by_role("region", name="in flight", exact=True).locator("tbody tr")
    expect(rows).to_contain_text("due again")
    action(page, "Reject", "0/4")
    page.get_by_label("Reason").fill("no such customer")
    confirm(page, "Move to the dead letters")
    expect(page.get_by_text("Nothing is in flight")).to_be_visible()
    (letter,) = shared.get("/v2/dead-letters", params={"topic": busy}).json()["dead_letters"]
    assert letter["envelope"]["dlq"]["last_error"] == "boom | rejected by an operator: no such customer"


def test_leases_are_released_one_by_one_and_all_of_a_worker(
    open_page: OpenPage, shared: ServerProcess, busy: str
) -> None:
    fetch(shared, busy, "worker-8", 2)
    page = open_page(shared.base, f"#/groups/{busy}/billing")
    action(page, "Release", "0/4")
    expect(page.get_by_role("dialog")).to_contain_text("the attempt does not count")
    confirm(page, "Release the lease")
    rows = page.get_by_role("region", name="in flight", exact=True).locator("tbody tr")
    expect(rows.filter(has_text="due again")).to_have_count(1)
    page.get_by_role("button", name="Release all of a worker").click()
    page.get_by_role("dialog").get_by_label("Worker").select_option("worker-8")
    confirm(page, "Release its leases")
    expect(rows.filter(has_text="due again")).to_have_count(3)
    action(page, "Discard", "0/5")
    confirm(page, "Discard the message")
    expect(rows).to_have_count(2)
    assert state(shared, busy)["lag"] == 5


def test_all_groups_are_listed_with_how_far_they_are(open_page: OpenPage, shared: ServerProcess, busy: str) -> None:
    page = open_page(shared.base, f"#/groups?search={busy}")
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name="billing"))
    expect(row).to_contain_text(busy)
    expect(row.get_by_role("img", name="6 messages behind of 10")).to_be_visible()
    expect(row.get_by_role("cell").nth(3)).to_have_text("6")
    expect(row.get_by_role("cell").nth(4)).to_have_text("1")
    row.get_by_role("cell").nth(3).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(f"{busy} / billing")


def test_what_is_in_flight_is_shown_with_its_owner_and_how_long_it_has(
    open_page: OpenPage, shared: ServerProcess, busy: str
) -> None:
    page = open_page(shared.base, f"#/groups/{busy}/billing")
    row = page.get_by_role("region", name="in flight", exact=True).locator("tbody tr")
    expect(row).to_have_count(1)
    expect(row).to_contain_text("worker-7")
    expect(row.locator("until-time")).to_have_text("9 min")
    (held,) = state(shared, busy)["messages"]
    assert shared.nack(busy, held, "the bank timed out", group="billing", owner="worker-7").is_success
    expect(row).to_contain_text("the bank timed out")
    row.get_by_role("link", name="0/4").click()
    expect(page.get_by_label("the body as Text")).to_have_text("message 4")


def test_a_lease_counts_down(open_page: OpenPage, shared: ServerProcess, topic: str) -> None:
    shared.produce(topic, "a message")
    fetch(shared, topic, "worker-7", 1, lease_ms=45_000)
    page = open_page(shared.base, f"#/groups/{topic}/billing")
    left = page.locator("until-time")
    expect(left).to_be_visible()
    first = left.inner_text()
    expect(left).not_to_have_text(first)
    assert int(left.inner_text().split()[0]) < int(first.split()[0])


def test_it_is_paused_and_resumed(open_page: OpenPage, shared: ServerProcess, busy: str) -> None:
    page = open_page(shared.base, f"#/groups/{busy}/billing")
    page.get_by_role("button", name="Pause").click()
    asked = page.get_by_role("dialog")
    expect(asked).to_contain_text(f"billing is delivered nothing of {busy} until it is resumed")
    expect(asked).to_contain_text("(1 message now)")
    asked.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("paused")
    assert state(shared, busy)["paused"]
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    assert not state(shared, busy)["paused"]


def test_thinking_better_of_it_changes_nothing(open_page: OpenPage, shared: ServerProcess, busy: str) -> None:
    page = open_page(shared.base, f"#/groups/{busy}/billing")
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("button", name="Leave it").click()
    page.get_by_role("button", name="Seek").click()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert (state(shared, busy)["paused"], state(shared, busy)["lag"]) == (False, 6)


def test_it_is_sent_to_the_start_after_saying_what_that_means(
    open_page: OpenPage, shared: ServerProcess, busy: str
) -> None:
    page = open_page(shared.base, f"#/groups/{busy}/billing")
    page.get_by_role("button", name="Seek").click()
    expect(page.get_by_role("dialog").get_by_role("status")).to_have_text(
        "billing has 6 messages in front of it now, and will have 10: 4 messages will be delivered again."
    )
    seek(page, "billing")
    assert (state(shared, busy)["lag"], state(shared, busy)["in_flight"]) == (10, 0)


def test_it_is_sent_to_the_end_after_saying_what_that_means(
    open_page: OpenPage, shared: ServerProcess, busy: str
) -> None:
    page = open_page(shared.base, f"#/groups/{busy}/billing")
    page.get_by_role("button", name="Seek").click()
    page.get_by_label("Go on with").select_option("latest")
    expect(page.get_by_role("dialog").get_by_role("status")).to_contain_text(
        "and will have 0: 6 messages will be passed over, and never be delivered to it."
    )
    seek(page, "billing")
    assert state(shared, busy)["lag"] == 0


def test_it_is_sent_to_an_offset(open_page: OpenPage, shared: ServerProcess, busy: str) -> None:
    page = open_page(shared.base, f"#/groups/{busy}/billing")
    page.get_by_role("button", name="Seek").click()
    expect(page.get_by_role("textbox", name="Offset")).to_be_hidden()
    page.get_by_label("Go on with").select_option("offset")
    expect(page.get_by_role("dialog").get_by_role("status")).to_have_text("Say which offset.")
    page.get_by_role("textbox", name="Offset").fill("2")
    expect(page.get_by_role("dialog").get_by_role("status")).to_contain_text("will have 8: 2 messages")
    seek(page, "billing")
    assert (state(shared, busy)["lag"], state(shared, busy)["partitions"][0]["watermark"]) == (8, 1)


def test_it_is_sent_to_a_time(open_page: OpenPage, shared: ServerProcess, busy: str) -> None:
    page = open_page(shared.base, f"#/groups/{busy}/billing")
    page.get_by_role("button", name="Seek").click()
    page.get_by_label("Go on with").select_option("time")
    page.get_by_role("textbox", name="Time").fill(f"{dt.datetime.now(dt.UTC) + dt.timedelta(hours=1):%Y-%m-%d %H:%M}")
    expect(page.get_by_role("dialog").get_by_role("status")).to_contain_text("will have 0: 6 messages")
    page.get_by_role("textbox", name="Time").fill("1h")
    expect(page.get_by_role("dialog").get_by_role("status")).to_contain_text("will have 10: 4 messages")
    seek(page, "billing")
    assert state(shared, busy)["lag"] == 10


def test_what_a_seek_in_many_partitions_means_is_counted(
    open_page: OpenPage, shared: ServerProcess, topic: str
) -> None:
    many = f"{topic}-many"
    shared.create(many, 3)
    for number in range(30):
        shared.produce(many, f"message {number}", key=f"key-{number}")
    fetch(shared, many, "worker-7", 1)
    page = open_page(shared.base, f"#/groups/{many}/billing")
    page.get_by_role("button", name="Seek").click()
    page.get_by_label("Go on with").select_option("offset")
    page.get_by_role("textbox", name="Offset").fill("12")
    expect(page.get_by_role("dialog").get_by_role("status")).to_contain_text("and will have 18: 12 messages")
    seek(page, "billing")
    assert state(shared, many)["lag"] == 18


def test_it_is_forgotten_only_by_its_name(
    open_page: OpenPage, shared: ServerProcess, busy: str, tolerate: list[str]
) -> None:
    tolerate.append("404")  # the page may ask for it once more before it is left
    page = open_page(shared.base, f"#/groups/{busy}/billing")
    page.get_by_role("button", name="Forget").click()
    forget = page.get_by_role("button", name="Forget the group")
    expect(forget).to_be_disabled()
    page.get_by_label("Type billing to go on").fill("billing")
    forget.click()
    expect(page.get_by_role("heading", level=1, name="Groups")).to_be_visible()
    assert shared.get(f"/v2/topics/{busy}/groups/billing").status_code == 404


def test_a_phone_shows_it_without_scrolling_sideways(open_page: OpenPage, shared: ServerProcess, busy: str) -> None:
    for place in ("#/groups", f"#/groups/{busy}/billing"):
        page = open_page(shared.base, place, size=PHONE)
        expect(page.get_by_text("billing").first).to_be_visible()
        assert not is_wider_than_its_window(page), place
