"""Dialogs, and what a button says while it is busy."""

from __future__ import annotations

from playwright.sync_api import Route, expect

from tests.console.browser.conftest import OpenPage
from tests.server_process import ServerProcess


def test_a_dialog_goes_with_the_page_that_asked(open_page: OpenPage, shared: ServerProcess, topic: str) -> None:
    page = open_page(shared.base, "#/topics")
    page.get_by_role("button", name="Create a topic").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    page.evaluate("location.hash = '#/groups'")
    expect(page.get_by_role("heading", level=1, name="Groups")).to_be_visible()
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_what_is_under_way_cannot_be_left_and_says_how_it_ended(
    open_page: OpenPage, shared: ServerProcess, topic: str, tolerate: list[str]
) -> None:
    tolerate += ["500"]
    page = open_page(shared.base, "#/topics")
    held: list[Route] = []
    page.route(
        "**/v2/topics", lambda route: held.append(route) if route.request.method == "POST" else route.continue_()
    )
    page.get_by_role("button", name="Create a topic").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill(f"{topic}.new")
    with page.expect_request(lambda request: request.method == "POST"):
        dialog.get_by_role("button", name="Create").click()
    expect(dialog.get_by_role("button", name="Leave it")).to_be_disabled()
    page.keyboard.press("Escape")
    expect(dialog).to_be_visible()
    held[0].fulfill(status=500, json={"error": "INTERNAL", "message": "it broke"})
    expect(dialog.get_by_role("alert")).to_contain_text("it broke")
    dialog.get_by_role("button", name="Leave it").click()
    expect(dialog).to_have_count(0)


def test_a_text_is_copied_where_the_browser_keeps_its_clipboard_from_pages(
    open_page: OpenPage, shared: ServerProcess, topic: str
) -> None:
    shared.produce(topic, "one")
    page = open_page(shared.base, f"#/topics/{topic}/0/0")
    copy = page.get_by_role("button", name="Copy as curl").first
    expect(copy).to_be_visible()
    # As on plain http, elsewhere than on this machine.
    page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined, configurable: true })")
    copy.click()
    expect(page.get_by_text("copied")).to_be_visible()
    page.evaluate("delete navigator.clipboard")
    assert page.evaluate("navigator.clipboard.readText()").startswith("curl -s ")
