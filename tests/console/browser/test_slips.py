"""The list of slips, in a browser."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.console.browser.conftest import PHONE, OpenPage, is_wider_than_its_window
from tests.console.browser.site import Site


def test_a_slip_is_found_by_a_part_of_its_id(open_page: OpenPage, site: Site) -> None:
    site.order(correlation_id="parcel-red-17")
    site.order(correlation_id="parcel-blue-17")
    page = open_page(site.base, "#/slips")
    page.get_by_label("correlationId, or a part of it").fill("red-1")
    slips = page.get_by_role("region", name="slips")
    expect(slips.get_by_role("link")).to_have_text(["parcel-red-17"])
    slips.get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("parcel-red-17")
    page.go_back()
    expect(page.get_by_label("correlationId, or a part of it")).to_have_value("red-1")
    expect(slips.get_by_role("link")).to_have_text(["parcel-red-17"])


def test_each_says_what_it_does_now(open_page: OpenPage, site: Site) -> None:
    waiting = site.order(correlation_id="now-waiting", total=900)
    dead = site.order(correlation_id="now-dead", broken="ship")
    done = site.order(correlation_id="now-done")
    page = open_page(site.base, "#/slips?search=now-")
    expect(page.get_by_role("row").filter(has_text=waiting)).to_contain_text("waits for approval at manager")
    expect(page.get_by_role("row").filter(has_text=dead)).to_contain_text("failed at ship")
    expect(page.get_by_role("row").filter(has_text=dead)).to_contain_text("rejected: the address has no street")
    expect(page.get_by_role("row").filter(has_text=done)).to_contain_text("completed")


@pytest.mark.parametrize(
    ("tab", "wanted"),
    [
        ("Under way", "kind-waiting"),
        ("Waiting for somebody", "kind-waiting"),
        ("Completed", "kind-done"),
        ("Dead letters", "kind-dead"),
    ],
)
def test_a_tab_shows_one_kind(open_page: OpenPage, site: Site, tab: str, wanted: str) -> None:
    prefix = tab.lower().replace(" ", "-")
    site.order(correlation_id=f"{prefix}-kind-waiting", total=900)
    site.order(correlation_id=f"{prefix}-kind-dead", broken="ship")
    site.order(correlation_id=f"{prefix}-kind-done")
    page = open_page(site.base, f"#/slips?search={prefix}-kind")
    slips = page.get_by_role("region", name="slips")
    for words in ("waits for approval", "failed at ship", "completed"):
        expect(slips).to_contain_text(words)
    page.get_by_role("navigation", name="state of slips").get_by_role("link", name=tab).click()
    expect(slips.get_by_role("link")).to_have_text([f"{prefix}-{wanted}"])


def test_one_type_is_chosen(open_page: OpenPage, site: Site) -> None:
    site.order(correlation_id="typed-order")
    site.order("refund.v1", correlation_id="typed-refund")
    page = open_page(site.base, "#/slips?search=typed-")
    slips = page.get_by_role("region", name="slips")
    expect(slips.get_by_role("link")).to_have_count(2)
    page.get_by_label("Type").select_option("refund.v1")
    expect(slips.get_by_role("link")).to_have_text(["typed-refund"])


def test_a_type_is_found_however_many_of_another_are_newer(open_page: OpenPage, site: Site) -> None:
    site.order("refund.v1", correlation_id="another-type")
    page = open_page(site.base, "#/slips")
    with page.expect_request("**/v2/slips?type=refund.v1*"):
        page.get_by_label("Type").select_option("refund.v1")


def test_branches_are_shown_to_who_wants_them(open_page: OpenPage, site: Site) -> None:
    site.order(correlation_id="with-branches")
    page = open_page(site.base, "#/slips?search=with-branches")
    slips = page.get_by_role("region", name="slips")
    expect(slips.get_by_role("link")).to_have_text(["with-branches"])
    page.get_by_label("branches too").check()
    expect(slips.get_by_role("link")).to_have_count(3)
    slips.get_by_role("link", name="papers").click()
    expect(page.get_by_text("branch of with-branches")).to_be_visible()
    expect(page.get_by_role("region", name="steps of run 1")).to_contain_text("invoice")


def test_where_nothing_is_found_it_says_so(open_page: OpenPage, site: Site) -> None:
    page = open_page(site.base, "#/slips?search=nobody-is-called-this")
    expect(page.get_by_text("No slip is like that.")).to_be_visible()


def test_a_paused_step_is_told_and_resumed(open_page: OpenPage, site: Site) -> None:
    site.pause("paint", "the brush is lost")
    page = open_page(site.base, "#/slips")
    paused = page.get_by_role("list", name="paused steps").get_by_role("listitem").filter(has_text="paint")
    expect(paused).to_contain_text("the brush is lost")
    paused.get_by_role("button", name="Resume").click()
    expect(page.get_by_text("paint goes on")).to_be_visible()
    expect(paused).to_have_count(0)


def test_a_phone_has_room_for_it(open_page: OpenPage, site: Site) -> None:
    order = site.order(correlation_id="on-a-phone", broken="ship")
    page = open_page(site.base, f"#/slips?search={order}", size=PHONE, theme="dark")
    expect(page.get_by_text("rejected: the address has no street")).to_be_visible()
    assert not is_wider_than_its_window(page)
