"""The pages with a shop on an ordinary day on them, at a desk and on a phone, light and dark."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.console.browser.conftest import DESK, PHONE, OpenPage, Picture, is_wider_than_its_window
from tests.console.browser.scene import furnish, visited
from tests.server_process import ServerProcess


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory, chromium: str) -> Iterator[ServerProcess]:
    server = ServerProcess(tmp_path_factory.mktemp("shop"))
    server.start()
    try:
        furnish(server)
        with visited(server):
            yield server
    finally:
        server.kill()


def topics(page: Page) -> None:
    expect(page.get_by_role("row").filter(has_text="clicks")).to_contain_text(re.compile(r"[1-9]\d*/s"))
    expect(page.get_by_role("img", name="270 messages behind of 360")).to_be_visible()


def messages(page: Page) -> None:
    page.get_by_role("region", name="messages", exact=True).get_by_role("link", name="357", exact=True).click()
    expect(page.get_by_role("complementary").get_by_label("the body as JSON")).to_contain_text("ord-48557")
    page.get_by_role("heading", name="Messages", exact=True).evaluate("heading => heading.scrollIntoView()")


def groups(page: Page) -> None:
    expect(page.get_by_role("link", name="ledger")).to_be_visible()


def group(page: Page) -> None:
    expect(page.get_by_role("region", name="in flight", exact=True).locator("tbody tr")).to_have_count(8)
    expect(page.get_by_text("the ledger is locked by end-of-day").first).to_be_visible()


def dead_letters(page: Page) -> None:
    page.get_by_role("button", name="the bank timed out after # ms").click()
    page.get_by_role("region", name="dead letters", exact=True).locator("tbody tr").first.click()
    expect(page.get_by_role("complementary")).to_contain_text(re.compile(r"the bank timed out after \d+ ms"))
    page.evaluate("scrollTo(0, 0)")


LOOKS: dict[str, tuple[str, Callable[[Page], None]]] = {
    "console-topics": ("#/topics", topics),
    "console-messages": ("#/topics/orders", messages),
    "console-groups": ("#/groups", groups),
    "console-group": ("#/groups/payments/ledger", group),
    "console-dead-letters": ("#/dead-letters", dead_letters),
}


@pytest.mark.parametrize("name", LOOKS)
@pytest.mark.parametrize(
    ("size", "theme"), [(DESK, "light"), (DESK, "dark"), (PHONE, "light")], ids=["desk", "dark", "phone"]
)
def test_a_page_looks_as_it_should(
    open_page: OpenPage, shop: ServerProcess, picture: Picture, name: str, size: tuple[int, int], theme: str
) -> None:
    place, prepare = LOOKS[name]
    page = open_page(shop.base, place, size=size, theme=theme)
    expect(page.locator("#status")).to_contain_text("live")
    prepare(page)
    assert not is_wider_than_its_window(page)
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == ("rgb(17, 21, 27)" if theme == "dark" else "rgb(247, 248, 250)")
    suffix = "" if (size, theme) == (DESK, "light") else f"-{'phone' if size == PHONE else theme}"
    picture(page, name + suffix)
