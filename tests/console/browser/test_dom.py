"""Pages that are drawn again and again while a person is in the middle of something."""

from __future__ import annotations

import itertools

from playwright.sync_api import Route, expect

from tests.console.browser.conftest import OpenPage
from tests.console.browser.site import Site
from tests.server_process import ServerProcess


def test_an_error_that_appears_and_goes_takes_no_focus(
    open_page: OpenPage, shared: ServerProcess, topic: str, tolerate: list[str]
) -> None:
    tolerate += ["503"]
    page = open_page(shared.base, f"#/topics?search={topic}")
    link = page.get_by_role("link", name=topic, exact=True)
    link.focus()
    times = itertools.count()

    def fail_once(route: Route) -> None:
        if next(times):
            route.continue_()
        else:
            route.fulfill(status=503, json={"error": "UNAVAILABLE", "message": "the broker is away"})

    page.route("**/v2/topics", fail_once)
    expect(page.get_by_text("the broker is away")).to_be_visible()
    expect(link).to_be_focused()
    expect(page.get_by_text("the broker is away")).to_have_count(0)
    expect(link).to_be_focused()


def test_what_is_typed_stays_when_something_appears_above_it(open_page: OpenPage, site: Site) -> None:
    page = open_page(site.base, "#/slips")
    box = page.locator("input[name=search]")
    box.press_sequentially("nothing-is")
    page.route(
        "**/v2/steps",
        lambda route: route.fulfill(
            json={"steps": [{"step": "pay", "paused": True, "reason": "the bank", "untilMs": None}]}
        ),
    )
    expect(page.get_by_text("the bank")).to_be_visible()
    expect(box).to_be_focused()
    page.keyboard.type("-called-so")
    expect(box).to_have_value("nothing-is-called-so")


def test_things_of_one_key_are_all_shown(open_page: OpenPage, shared: ServerProcess) -> None:
    page = open_page(shared.base)
    shown = page.evaluate(
        """async () => {
            const { h, mount } = await import("./lib/dom.js");
            const root = h("ul");
            const names = ["a", "a", "b"];
            const view = mount(root, () => names.map((name) => h("li", { key: name }, name)));
            view.update();
            return [...root.children].map((each) => each.textContent);
        }"""
    )
    assert shown == ["a", "a", "b"]


def test_the_exact_time_stays_on_hover_while_its_page_is_drawn_anew(open_page: OpenPage, shared: ServerProcess) -> None:
    page = open_page(shared.base)
    found = page.evaluate(
        """async () => {
            const { h, mount } = await import("./lib/dom.js");
            await import("./parts/since.js");
            const root = h("p");
            document.body.append(root);
            const view = mount(root, () => h("since-time", { ms: Date.now() - 7_200_000 }));
            const before = root.firstChild;
            view.update();
            return [root.firstChild === before, before.title.endsWith("UTC")];
        }"""
    )
    assert found == [True, True]


def test_a_time_that_is_marked_stays_marked_while_it_says_the_same(open_page: OpenPage, shared: ServerProcess) -> None:
    page = open_page(shared.base)
    marked = page.evaluate(
        """async () => {
            const { h } = await import("./lib/dom.js");
            await import("./parts/since.js");
            const element = h("since-time", { ms: Date.now() - 7_200_000 });
            document.body.append(element);
            getSelection().selectAllChildren(element);
            element.draw();
            return getSelection().toString();
        }"""
    )
    assert marked == "2 h ago"


def test_marking_text_in_a_row_does_not_open_it(open_page: OpenPage, shared: ServerProcess, topic: str) -> None:
    page = open_page(shared.base, f"#/topics?search={topic}")
    cell = page.get_by_role("row").filter(has_text=topic).get_by_role("cell").nth(5)
    box = cell.bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 14, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + 50, middle, steps=5)
    page.mouse.up()
    assert page.evaluate("getSelection().toString()")
    expect(page.get_by_role("heading", level=1, name="Topics")).to_be_visible()
    cell.click()
    expect(page.get_by_role("heading", level=1, name=topic)).to_be_visible()
