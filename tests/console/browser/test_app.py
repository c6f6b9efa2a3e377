"""The frame around the pages, in a browser."""

from __future__ import annotations

import time

import pytest
from playwright.sync_api import Route, expect

from tests.console.browser.conftest import DESK, PHONE, OpenPage, is_wider_than_its_window
from tests.console.browser.site import Site
from tests.server_process import ServerProcess

PAGES = ["Overview", "Topics", "Groups", "Dead letters"]


def test_the_rail_leads_to_every_page(open_page: OpenPage, shared: ServerProcess) -> None:
    page = open_page(shared.base)
    for name in PAGES:
        page.get_by_role("navigation", name="Pages").get_by_role("link", name=name).click()
        expect(page.get_by_role("heading", level=1, name=name)).to_be_visible()
        expect(page).to_have_title(f"{name} · Slipstream")


def test_the_rail_has_only_pages_whose_source_is_there(open_page: OpenPage, shared: ServerProcess, site: Site) -> None:
    """A broker alone has no slips, jobs and tables: what is not installed is not there either."""
    rail = open_page(shared.base).get_by_role("navigation", name="Pages").get_by_role("link")
    expect(rail).to_have_count(len(PAGES))
    expect(rail).to_contain_text(PAGES)  # a link may have a number behind it
    rail = open_page(site.base).get_by_role("navigation", name="Pages").get_by_role("link")
    expect(rail).to_contain_text([*PAGES, "Slips", "Jobs", "Pipeline"])


@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_status_line_says_that_it_is_live(
    open_page: OpenPage, shared: ServerProcess, size: tuple[int, int], theme: str
) -> None:
    page = open_page(shared.base, size=size, theme=theme)
    expect(page.locator("#status")).to_contain_text("live")
    assert not is_wider_than_its_window(page)


def test_the_skip_link_leads_into_the_page_that_is_open(open_page: OpenPage, shared: ServerProcess) -> None:
    page = open_page(shared.base, "#/topics")
    expect(page.get_by_role("heading", level=1, name="Topics")).to_be_visible()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the page")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    expect(page.get_by_role("heading", level=1, name="Topics")).to_be_visible()


def test_a_name_that_is_no_page_is_said_to_be_none(open_page: OpenPage, shared: ServerProcess) -> None:
    page = open_page(shared.base, "#/constructor")
    expect(page.get_by_role("alert")).to_contain_text("there is no page constructor")


def test_what_was_searched_for_is_chosen_by_keyboard(open_page: OpenPage, shared: ServerProcess, topic: str) -> None:
    shared.create(f"{topic}.two")
    page = open_page(shared.base)
    # What is searched is what the console has heard of the broker last.
    deadline = time.monotonic() + 30
    while len(shared.get(f"/v2/search?q={topic}").json()["hits"]) < 2:
        assert time.monotonic() < deadline, "the console does not hear of the new topics"
    page.keyboard.press("/")
    page.keyboard.type(topic)
    page.keyboard.press("Enter")
    hits = page.locator("#search-hits a")
    expect(hits.first).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(hits.nth(1)).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("#search-text")).to_be_focused()
    expect(page.locator("#search-hits")).to_be_hidden()
    page.keyboard.press("Enter")
    expect(hits.first).to_be_focused()
    page.locator("#search-text").press("x")
    expect(page.locator("#search-hits")).to_be_hidden()


def test_an_answer_to_a_search_that_comes_late_leads_nobody_away(
    open_page: OpenPage, shared: ServerProcess, topic: str
) -> None:
    page = open_page(shared.base)
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/v2/search*", hold)
    page.locator("#search-text").fill(f"{topic}/0/0")
    with page.expect_request("**/v2/search*"):
        page.locator("#search-text").press("Enter")
    with page.expect_event("requestfailed"):  # the page no longer wants the answer
        page.get_by_role("link", name="Groups").click()
    expect(page.get_by_role("heading", level=1, name="Groups")).to_be_visible()
    assert len(held) == 1


def test_one_comes_back_to_where_one_was_in_a_list(open_page: OpenPage, shared: ServerProcess, topic: str) -> None:
    names = [f"{topic}.{number}" for number in range(12)]
    for name in names:
        shared.create(name)
    page = open_page(shared.base, f"#/topics?search={topic}", size=PHONE)
    link = page.get_by_role("link", name=names[-1], exact=True)
    link.scroll_into_view_if_needed()
    page.wait_for_function("scrollY > 500")
    before = page.evaluate("scrollY")
    link.click()
    expect(page.get_by_role("heading", level=1, name=names[-1])).to_be_visible()
    assert page.evaluate("scrollY") == 0
    page.go_back()
    page.wait_for_function("place => scrollY === place", arg=before)


def test_the_first_click_changes_light_to_dark_and_the_next_one_back(
    open_page: OpenPage, shared: ServerProcess
) -> None:
    page = open_page(shared.base)
    back = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(back)
    page.get_by_role("button", name="Change between light and dark").click()
    assert page.evaluate(back) != light
    page.reload()
    page.wait_for_function("document.documentElement.dataset.theme === 'dark'")
    page.get_by_role("button", name="Change between light and dark").click()
    assert page.evaluate(back) == light


HIDE = """(isHidden) => {
    Object.defineProperty(document, "hidden", { value: isHidden, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
}"""


def test_a_page_that_nobody_looks_at_holds_no_connection(open_page: OpenPage, shared: ServerProcess) -> None:
    # Chromium under Playwright takes every page for seen: so the page is told that it is not.
    page = open_page(shared.base)
    expect(page.locator("#status")).to_contain_text("live")
    with page.expect_event("requestfailed", lambda request: request.url.endswith("/v2/overview")):
        page.evaluate(HIDE, True)
    with page.expect_request("**/v2/overview"):
        page.evaluate(HIDE, False)
    expect(page.locator("#status")).to_contain_text("live")
