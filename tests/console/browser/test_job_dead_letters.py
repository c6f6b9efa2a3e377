"""What was given up, of all jobs, in a browser."""

from __future__ import annotations

from playwright.sync_api import Locator, Page, expect

from tests.console.browser.conftest import OpenPage
from tests.console.browser.site import Site


def cause(page: Page, code: str) -> Locator:
    return page.get_by_role("region", name="dead letters by cause").get_by_role("row").filter(has_text=code)


def test_they_are_grouped_by_cause_and_chosen(open_page: OpenPage, site: Site) -> None:
    site.job({"a": "/status/404", "b": "/status/410", "c": "/bomb"}, tenant="causes")
    page = open_page(site.base, "#/jobs/dead-letters?tenant=causes")
    expect(page.get_by_text("3 dead letters", exact=True)).to_be_visible()
    expect(cause(page, "DOWNLOAD_HTTP_STATUS").get_by_role("cell").nth(1)).to_have_text("2")
    expect(cause(page, "DOWNLOAD_BOMB").get_by_role("cell").nth(1)).to_have_text("1")
    cause(page, "DOWNLOAD_BOMB").get_by_role("button", name="DOWNLOAD_BOMB", exact=True).click()
    expect(page.get_by_label("Code, or how it begins")).to_have_value("DOWNLOAD_BOMB")
    expect(page.get_by_text("1 dead letter", exact=True)).to_be_visible()
    expect(page.get_by_role("region", name="newest dead letters").get_by_role("row")).to_have_count(2)


def test_one_cause_is_replayed(open_page: OpenPage, site: Site) -> None:
    site.job({"flaky": "/flaky/2/one-cause", "bomb": "/bomb"}, tenant="replayed")
    page = open_page(site.base, "#/jobs/dead-letters?tenant=replayed")
    expect(page.get_by_text("2 dead letters", exact=True)).to_be_visible()
    page.get_by_role("button", name="Replay those with DOWNLOAD_HTTP_STATUS").click()
    page.get_by_role("dialog").get_by_role("button", name="Replay 1").click()
    expect(page.get_by_text("1 task published again")).to_be_visible()
    expect(cause(page, "DOWNLOAD_HTTP_STATUS")).to_have_count(0)
    expect(cause(page, "DOWNLOAD_BOMB")).to_have_count(1)


def test_a_selection_is_discarded_after_a_count(open_page: OpenPage, site: Site) -> None:
    site.job({name: f"/status/404/{name}" for name in "abc"}, tenant="discarded")
    page = open_page(site.base, "#/jobs/dead-letters?tenant=discarded")
    expect(page.get_by_text("3 dead letters", exact=True)).to_be_visible()
    page.get_by_role("button", name="Discard this selection…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Discard 3 dead letters of this selection?")
    dialog.get_by_role("button", name="Leave it").click()
    expect(page.get_by_text("3 dead letters", exact=True)).to_be_visible()
    page.get_by_role("button", name="Discard this selection…").click()
    dialog.get_by_label("Type discard 3 to go on").fill("discard 3")
    dialog.get_by_role("button", name="Discard 3").click()
    expect(page.get_by_text("No dead letter is like that.")).to_be_visible()


def test_one_resource_is_replayed(open_page: OpenPage, site: Site) -> None:
    job = site.job({"flaky": "/flaky/2/one-resource", "gone": "/status/404"}, tenant="single")
    page = open_page(site.base, "#/jobs/dead-letters?tenant=single")
    page.get_by_role("button", name=f"Replay flaky of {job}").click()
    page.get_by_role("dialog").get_by_role("button", name="Replay 1").click()
    expect(page.get_by_role("button", name=f"Replay flaky of {job}")).to_have_count(0)
    expect(page.get_by_role("button", name=f"Replay gone of {job}")).to_be_visible()
