"""One slip, in a browser: its timeline, and what a person does about it."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.console.browser.conftest import DESK, PHONE, OpenPage, is_wider_than_its_window
from tests.console.browser.site import Site


def standing(page: Page) -> Locator:
    return page.get_by_role("region", name="what it does now")


def line(page: Page, name: str) -> Locator:
    """Of the timeline, whose drawing is described as a whole: for the others there is the table."""
    return page.locator(".gantt-line").filter(has=page.locator(".gantt-name").get_by_text(name, exact=True))


# What it shows


def test_every_attempt_has_its_bar_and_its_error(open_page: OpenPage, site: Site) -> None:
    order = site.order(failures=2)
    page = open_page(site.base, f"#/slips/{order}")
    expect(standing(page)).to_contain_text("Completed")
    expect(line(page, "charge #1")).to_contain_text("bank_timeout: the bank has not answered within 2 s")
    expect(line(page, "charge #2")).to_contain_text("bank_timeout, as before")
    for attempt in ("charge #1", "charge #2", "charge #3"):
        expect(line(page, attempt).locator(".gantt-work")).to_have_count(1)
    # The pause before an attempt is told apart from the work.
    expect(line(page, "charge #3").locator(".gantt-queue")).to_have_count(1)
    expect(page.get_by_role("img", name="timeline of run 1")).to_be_visible()


def test_branches_are_nested_in_their_step(open_page: OpenPage, site: Site) -> None:
    order = site.order()
    page = open_page(site.base, f"#/slips/{order}")
    expect(standing(page)).to_contain_text("Completed")
    steps = page.get_by_role("region", name="steps of run 1").get_by_role("row")
    for step in ("warehouse / reserve", "warehouse / pick", "papers / invoice"):
        expect(steps.filter(has_text=step)).to_have_count(1)
    for name in ("warehouse", "papers", "reserve", "pick", "invoice"):
        expect(line(page, name)).to_have_count(1)


def test_what_may_fail_is_no_alarm(open_page: OpenPage, site: Site) -> None:
    order = site.order(broken="notify")
    page = open_page(site.base, f"#/slips/{order}")
    expect(standing(page)).to_contain_text("Completed")
    expect(line(page, "notify")).to_contain_text("550 no such mailbox")
    expect(line(page, "notify")).to_contain_text("it may fail: the message goes on without it")


def test_what_was_undone_stands_underneath_the_last_first(open_page: OpenPage, site: Site) -> None:
    order = site.order(total=120, broken="ship")
    page = open_page(site.base, f"#/slips/{order}")
    expect(standing(page)).to_contain_text("A dead letter since")
    expect(standing(page)).to_contain_text("rejected: the address has no street")
    expect(page.locator(".gantt-note")).to_have_text("Undone, the last first")
    expect(page.locator(".gantt-line.is-undoing .gantt-name")).to_contain_text(["reserve", "charge"])
    expect(line(page, "notify")).to_contain_text("skipped: ship failed")


def test_what_it_carries_is_shown(open_page: OpenPage, site: Site) -> None:
    order = site.order(customer="Ada <b>Lovelace</b>")
    page = open_page(site.base, f"#/slips/{order}")
    expect(page.get_by_label("payload")).to_contain_text('"customer": "Ada <b>Lovelace</b>"')
    expect(page.get_by_label("envelope")).to_contain_text('"source": "web-shop"')
    topic = page.get_by_role("link", name="internal.charge.v1")
    expect(topic).to_have_attribute("href", re.compile(r"^#/topics/internal\.charge\.v1\?time=2"))


def test_its_trace_is_copied(open_page: OpenPage, site: Site) -> None:
    order = site.order()
    page = open_page(site.base, f"#/slips/{order}")
    trace = page.locator(".facts-line").get_by_text("trace ").locator("code")
    trace.locator("xpath=following-sibling::button").click()
    expect(page.get_by_text("copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == trace.inner_text()


def test_short_and_long_are_evened_out(open_page: OpenPage, site: Site) -> None:
    order = site.order(total=900)
    page = open_page(site.base, f"#/slips/{order}")
    expect(standing(page)).to_contain_text("Waits for approval at manager")
    page.get_by_label("even out long and short").set_checked(False)
    bar = line(page, "manager").locator("rect").first
    wide = bar.bounding_box()
    page.get_by_label("even out long and short").check()
    expect(page).to_have_url(f"{site.base}/console/#/slips/{order}?scale=even")
    narrow = bar.bounding_box()
    assert wide is not None
    assert narrow is not None
    assert narrow["width"] < wide["width"]


def test_an_id_that_nobody_knows_is_said(open_page: OpenPage, site: Site, tolerate: list[str]) -> None:
    tolerate.append("404")
    page = open_page(site.base, "#/slips/nobody-is-called-this")
    said = page.get_by_role("alert")
    expect(said).to_contain_text("nobody-is-called-this")
    expect(said).to_contain_text("request c-")


# What a person does


def test_it_is_approved_and_completes(open_page: OpenPage, site: Site) -> None:
    order = site.order(total=900)
    page = open_page(site.base, f"#/slips/{order}")
    expect(standing(page)).to_contain_text("Waits for approval at manager")
    expect(line(page, "ship")).to_have_class("gantt-line is-pending")
    page.get_by_role("button", name=f"Approve manager of {order}").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Your name").fill("Ada")
    dialog.get_by_label("Note").fill("a good customer")
    dialog.get_by_label("Data").fill('{"discount": 5}')
    dialog.get_by_role("button", name="Approve").click()
    expect(standing(page)).to_contain_text("Completed")
    expect(line(page, "manager")).to_contain_text("approved by Ada: a good customer")
    expect(line(page, "ship")).to_have_class("gantt-line is-done")
    expect(page.get_by_label("payload")).to_contain_text('"discount": 5')


def test_it_is_denied_and_undone(open_page: OpenPage, site: Site) -> None:
    order = site.order(total=900)
    page = open_page(site.base, f"#/slips/{order}")
    page.get_by_role("button", name=f"Deny manager of {order}").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("what was done before it is undone")
    dialog.get_by_label("Your name").fill("Grace")
    dialog.get_by_label("Note").fill("too much")
    dialog.get_by_role("button", name="Deny").click()
    expect(standing(page)).to_contain_text("A dead letter since")
    expect(line(page, "manager")).to_contain_text("denied by Grace: too much")
    expect(page.locator(".gantt-line.is-undoing .gantt-name")).to_contain_text(["reserve", "charge"])


def test_data_that_is_no_json_is_refused_before_it_is_sent(open_page: OpenPage, site: Site) -> None:
    order = site.order(total=900)
    page = open_page(site.base, f"#/slips/{order}")
    page.get_by_role("button", name=f"Approve manager of {order}").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Your name").fill("Ada")
    dialog.get_by_label("Data").fill("{discount: 5}")
    dialog.get_by_role("button", name="Approve").click()
    expect(dialog.get_by_role("alert")).to_contain_text("the data is no JSON")
    expect(standing(page)).to_contain_text("Waits for approval at manager")


def test_who_thinks_better_of_it_leaves_it(open_page: OpenPage, site: Site) -> None:
    order = site.order(total=900)
    page = open_page(site.base, f"#/slips/{order}")
    page.get_by_role("button", name=f"Deny manager of {order}").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(standing(page)).to_contain_text("Waits for approval at manager")


def test_it_is_approved_with_the_keyboard_alone(open_page: OpenPage, site: Site) -> None:
    order = site.order(total=900)
    page = open_page(site.base, f"#/slips/{order}")
    approve = page.get_by_role("button", name=f"Approve manager of {order}")
    expect(approve).to_be_visible()
    for _ in range(40):
        page.keyboard.press("Tab")
        if approve.evaluate("button => button === document.activeElement"):
            break
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog").get_by_label("Your name")).to_be_focused()
    page.keyboard.type("Ada")
    page.keyboard.press("Enter")
    expect(standing(page)).to_contain_text("Completed")


def test_a_dead_letter_runs_again_from_where_it_can(open_page: OpenPage, site: Site) -> None:
    order = site.order(total=120, broken="ship")
    page = open_page(site.base, f"#/slips/{order}")
    expect(standing(page)).to_contain_text("A dead letter since")
    page.get_by_role("button", name="Run again…", exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("From which step?")).to_have_value("charge")
    dialog.get_by_role("button", name="Run it again").click()
    expect(page.get_by_role("img", name="timeline of run 2")).to_be_visible()
    expect(page.get_by_role("heading", name="Run 2, from charge").first).to_be_visible()
    expect(page.locator(".gantt-note")).to_have_count(2)
    expect(page.locator(".facts-line")).to_contain_text("in 2 runs")


def test_a_refusal_is_said_in_words(open_page: OpenPage, site: Site, tolerate: list[str]) -> None:
    """What was undone cannot be built upon."""
    tolerate.append("40[09]|status of 4")
    order = site.order(total=120, broken="ship")
    page = open_page(site.base, f"#/slips/{order}")
    expect(standing(page)).to_contain_text("A dead letter since")
    page.get_by_role("button", name="Run again from ship").click()
    page.get_by_role("dialog").get_by_role("button", name="Run it again").click()
    expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("undone")


def test_one_that_waits_is_cancelled(open_page: OpenPage, site: Site) -> None:
    order = site.order(total=900)
    page = open_page(site.base, f"#/slips/{order}")
    expect(standing(page)).to_contain_text("Waits for approval")
    page.get_by_role("button", name="Cancel…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Why?").fill("ordered twice")
    expect(dialog.get_by_role("button", name="Cancel it")).to_be_disabled()
    dialog.get_by_label(f"Type {order} to go on").fill(order)
    dialog.get_by_role("button", name="Cancel it").click()
    expect(standing(page)).to_contain_text("A dead letter since")
    expect(standing(page)).to_contain_text("ordered twice")


def test_a_step_is_resumed_where_its_message_waits(open_page: OpenPage, site: Site) -> None:
    site.pause("pack", "no boxes left")
    try:
        order = site.order("parcel.v1", slow=1.5)  # so that all workers have heard of the pause
        page = open_page(site.base, f"#/slips/{order}")
        expect(standing(page)).to_contain_text("Step pack is paused: no boxes left")
        page.get_by_role("button", name="Resume pack").click()
        expect(standing(page)).to_contain_text("Completed")
    finally:
        site.resume("pack")


def test_a_step_is_paused_from_a_message_that_is_there(open_page: OpenPage, site: Site) -> None:
    order = site.order("parcel.v1", slow=20)
    page = open_page(site.base, f"#/slips/{order}")
    try:
        expect(standing(page)).to_contain_text("stamp is being worked on")
        page.get_by_role("button", name="Pause stamp…").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Why?").fill("the ink is dry")
        dialog.get_by_role("button", name="Pause it").click()
        expect(page.get_by_text("stamp is paused")).to_be_visible()
        expect(page.get_by_role("button", name="Resume stamp")).to_be_visible()
    finally:
        site.resume("stamp")


# How it looks


@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_there_is_room_for_it(open_page: OpenPage, site: Site, size: tuple[int, int], theme: str) -> None:
    order = site.order(total=120, failures=1, broken="ship")
    page = open_page(site.base, f"#/slips/{order}", size=size, theme=theme)
    expect(page.locator(".gantt-note")).to_be_visible()
    expect(line(page, "charge #1").locator(".gantt-said")).to_be_visible()
    assert not is_wider_than_its_window(page)
