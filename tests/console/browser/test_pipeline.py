"""Tables, SQL and plots, in a browser."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.console.browser.conftest import PHONE, OpenPage, is_wider_than_its_window
from tests.console.browser.site import Site


def test_every_table_says_how_much_it_has(open_page: OpenPage, site: Site) -> None:
    page = open_page(site.base, "#/pipeline")
    row = page.get_by_role("row").filter(has_text="job_snapshots")
    expect(row).to_contain_text("The latest state of every job.")
    expect(row).to_contain_text("60")
    expect(row).to_contain_text("KiB")


def test_a_table_opens_with_its_columns_and_rows(open_page: OpenPage, site: Site) -> None:
    page = open_page(site.base, "#/pipeline")
    page.get_by_role("link", name="stuck_slips").click()
    expect(page.get_by_role("heading", name="stuck_slips")).to_be_visible()
    rows = page.get_by_role("region", name="newest rows of stuck_slips")
    expect(rows).to_contain_text("order-0815")
    expect(rows).to_contain_text("<b>order</b>")
    columns = page.get_by_role("region", name="columns of stuck_slips")
    expect(columns.get_by_role("row").filter(has_text="since")).to_contain_text("timestamp")
    page.get_by_role("link", name="Ask it with SQL").click()
    expect(page.get_by_label("SQL", exact=True)).to_have_value("select *\nfrom stuck_slips\nlimit 100")


def test_sql_is_answered_as_a_table(open_page: OpenPage, site: Site) -> None:
    page = open_page(site.base, "#/pipeline/sql")
    page.get_by_role("button", name="Downloads by tenant").click()
    page.keyboard.press("Control+Enter")
    answer = page.get_by_role("region", name="answer")
    expect(answer.get_by_role("columnheader")).to_have_text(["tenant", "stored", "failed", "bytes"])
    expect(answer.get_by_role("row").nth(1).get_by_role("cell").first).to_have_text("acme")
    expect(answer.get_by_role("columnheader").nth(1)).to_have_class(re.compile("number"))
    expect(page.get_by_text(re.compile(r"^3 rows · \d"))).to_be_visible()


def test_more_rows_than_asked_for_are_told_of(open_page: OpenPage, site: Site) -> None:
    page = open_page(site.base, "#/pipeline/sql?q=select+*+from+slip_steps")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.get_by_text("the first 100 rows: there are more")).to_be_visible()
    expect(page.get_by_role("region", name="answer").get_by_role("row")).to_have_count(101)
    page.get_by_label("rows at most").select_option("1,000 rows at most")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.get_by_text(re.compile("^808 rows ·"))).to_be_visible()


def test_numbers_are_shown_as_they_are(open_page: OpenPage, site: Site) -> None:
    page = open_page(site.base, "#/pipeline/sql")
    page.get_by_label("SQL", exact=True).fill("select 2026 as year, 0.0004::double as small, 9007199254740993 as large")
    page.get_by_role("button", name="Run", exact=True).click()
    cells = page.get_by_role("region", name="answer").get_by_role("cell")
    expect(cells).to_have_text(["2026", "0.0004", "9007199254740993"])
    expect(cells.nth(2)).to_have_class(re.compile("number"))


def test_a_row_is_a_line_however_long_its_values_are(open_page: OpenPage, site: Site) -> None:
    page = open_page(site.base, "#/pipeline/sql")
    page.get_by_label("SQL", exact=True).fill("select repeat('a word ', 40) as long, 'short' as short")
    page.get_by_role("button", name="Run", exact=True).click()
    cell = page.get_by_role("region", name="answer").get_by_role("cell").first
    expect(cell.locator("span")).to_have_attribute("title", "a word " * 40)
    box = cell.bounding_box()
    assert box is not None
    assert box["height"] < 50
    page.get_by_role("button", name="Slowest steps").click()
    expect(page.get_by_role("region", name="answer")).to_have_count(0)


def test_a_long_answer_is_shown_a_stretch_at_a_time_and_copied_whole(open_page: OpenPage, site: Site) -> None:
    page = open_page(site.base, "#/pipeline/sql?q=select+*+from+range(350)")
    page.get_by_label("rows at most").select_option("1,000 rows at most")
    page.get_by_role("button", name="Run", exact=True).click()
    rows = page.get_by_role("region", name="answer").get_by_role("row")
    expect(rows).to_have_count(101)
    page.get_by_role("button", name="Show 100 more of 350").click()
    expect(rows).to_have_count(201)
    page.get_by_role("button", name="Copy as CSV").click()
    expect(page.get_by_text("copied")).to_be_visible()
    assert len(page.evaluate("navigator.clipboard.readText()").splitlines()) == 351


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("drop table messages", "tables are only read here"),
        ("select nothing from messages", "nothing"),
        ("select 1; select 2", "one statement at a time"),
    ],
)
def test_what_is_refused_is_said_in_words(
    open_page: OpenPage, site: Site, tolerate: list[str], sql: str, words: str
) -> None:
    tolerate.append("400")
    page = open_page(site.base, "#/pipeline/sql")
    page.get_by_label("SQL", exact=True).fill(sql)
    page.get_by_role("button", name="Run", exact=True).click()
    refusal = page.get_by_role("alert")
    expect(refusal).to_contain_text(words)
    expect(refusal).to_contain_text("request c-")


def test_what_was_asked_before_is_kept_in_the_browser(open_page: OpenPage, site: Site) -> None:
    page = open_page(site.base, "#/pipeline/sql")
    for number in (1, 2):
        page.get_by_label("SQL", exact=True).fill(f"select {number} as answer_{number}")
        page.get_by_role("button", name="Run", exact=True).click()
        expect(page.get_by_role("columnheader", name=f"answer_{number}")).to_be_visible()
    page.reload()
    page.get_by_text("Asked before").click()
    page.get_by_role("button", name="select 1 as answer_1").click()
    expect(page.get_by_label("SQL", exact=True)).to_have_value("select 1 as answer_1")
    page.get_by_role("button", name="Forget them").click()
    expect(page.get_by_text("Asked before")).to_have_count(0)


def test_the_plots_are_shown_as_high_as_they_are(open_page: OpenPage, site: Site) -> None:
    page = open_page(site.base, "#/pipeline")
    page.get_by_role("navigation", name="parts of the pipeline").get_by_role("link", name="Plots").click()
    frame = page.frame_locator("iframe")
    expect(frame.get_by_role("heading", name="Throughput")).to_be_visible()
    box = page.locator("iframe").bounding_box()
    assert box is not None
    inside = frame.locator("html").evaluate("html => html.scrollHeight")
    assert box["height"] >= inside > 1000, "there is a second bar to scroll with"


@pytest.mark.parametrize("place", ["#/pipeline", "#/pipeline/job_snapshots", "#/pipeline/sql", "#/pipeline/plots"])
def test_a_phone_has_room_for_it(open_page: OpenPage, site: Site, place: str) -> None:
    page = open_page(site.base, place, size=PHONE, theme="dark")
    expect(page.locator(".page table, .page textarea, .page iframe").first).to_be_visible()
    assert not is_wider_than_its_window(page)
