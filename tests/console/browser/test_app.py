"""The frame around the pages, in a browser."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.console.browser.conftest import DESK, PHONE, OpenPage, is_wider_than_its_window
from tests.server_process import ServerProcess

PAGES = ["Overview", "Topics", "Groups", "Dead letters"]


def test_the_rail_leads_to_every_page(open_page: OpenPage, shared: ServerProcess) -> None:
    page = open_page(shared.base)
    for name in PAGES:
        page.get_by_role("navigation", name="Pages").get_by_role("link", name=name).click()
        expect(page.get_by_role("heading", level=1, name=name)).to_be_visible()
        expect(page).to_have_title(f"{name} · Slipstream")


@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_status_line_says_that_it_is_live(
    open_page: OpenPage, shared: ServerProcess, size: tuple[int, int], theme: str
) -> None:
    page = open_page(shared.base, size=size, theme=theme)
    expect(page.locator("#status")).to_contain_text("live")
    assert not is_wider_than_its_window(page)
