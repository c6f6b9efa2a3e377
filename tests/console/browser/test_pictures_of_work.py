"""Pictures of slips, jobs and tables on an ordinary day, for the documentation: `make screenshots`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.console.browser.conftest import OpenPage, Picture
from tests.console.browser.site import Site, running_site

PEOPLE = ["Ada", "Grace", "Alan", "Edsger", "Barbara", "Donald", "Radia", "Tony", "Frances", "Leslie"]
ITEMS = ["desk lamp", "bookshelf", "oak chair", "wool rug", "wall clock", "tea kettle"]


@pytest.fixture(scope="module")
def day(chromium: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Of a shop: with time for what it does, so that there is something to see."""
    if request.config.getoption("--screenshots") is None:
        pytest.skip("nobody has asked for pictures: make screenshots")
    with running_site(tmp_path_factory.mktemp("day"), SLIP_RETRY_BASE_MS="700") as site:
        _jobs(site)
        _orders(site)
        yield site
        site.let_go()


def test_slips(open_page: OpenPage, day: Site, picture: Picture) -> None:
    page = open_page(day.base, "#/slips")
    for words in ("waits for approval at manager", "failed at ship", " is at work", "label: the printer has no paper"):
        expect(page.get_by_text(words).first).to_be_visible()
    picture(page, "console-slips")


def test_slip(open_page: OpenPage, day: Site, picture: Picture) -> None:
    page = open_page(day.base, "#/slips/order-20417")
    expect(page.get_by_text("A dead letter since")).to_be_visible()
    expect(page.locator(".gantt-line.is-undoing")).to_have_count(2)
    picture(page, "console-slip")


def test_jobs(open_page: OpenPage, day: Site, picture: Picture) -> None:
    page = open_page(day.base, "#/jobs")
    expect(page.get_by_text("71 of 84 stored, 13 to go")).to_be_visible()
    expect(page.get_by_text("partial").first).to_be_visible()
    page.wait_for_timeout(700)  # the bars move
    picture(page, "console-jobs")


def test_job(open_page: OpenPage, day: Site, picture: Picture) -> None:
    page = open_page(day.base, "#/jobs?tenant=globex&state=partial")
    page.get_by_role("region", name="jobs").get_by_role("link").last.click()
    expect(page.get_by_role("region", name="failures by host").get_by_role("row")).to_have_count(4)
    expect(page.locator(".log")).to_contain_text("the job has ended")
    page.wait_for_timeout(700)
    picture(page, "console-job")


def test_pipeline(open_page: OpenPage, day: Site, picture: Picture) -> None:
    page = open_page(day.base, "#/pipeline")
    expect(page.get_by_role("link", name="job_throughput")).to_be_visible()
    picture(page, "console-pipeline")


def test_sql(open_page: OpenPage, day: Site, picture: Picture) -> None:
    page = open_page(day.base, "#/pipeline/sql")
    page.get_by_role("button", name="Why downloads fail").click()
    page.keyboard.press("Control+Enter")
    expect(page.get_by_role("region", name="answer")).to_contain_text("cdn.example.test")
    picture(page, "console-sql")


def _orders(site: Site) -> None:
    site.pause("label", "the printer has no paper")
    site.order(correlation_id="order-20417", failures=1, broken="ship", pace=1.1, **_order(3, 149))
    for number in range(9):
        site.order(correlation_id=f"order-{20401 + number}", pace=0.1 + number / 9, **_order(number, 30 + number * 17))
    site.order("refund.v1", correlation_id="refund-311", pace=5, **_order(6, 45))
    site.order("refund.v1", correlation_id="refund-312", pace=2, **_order(1, 25))
    site.order(correlation_id="order-20415", pace=0.7, **_order(5, 920))
    site.order(correlation_id="order-20416", broken="notify", pace=0.2, **_order(2, 61))
    site.order(correlation_id="order-20418", pace=60, **_order(7, 88))
    site.order("parcel.v1", correlation_id="parcel-9002", slow=120, **_order(4, 12))


def _order(number: int, total: int) -> dict[str, Any]:
    return {"customer": PEOPLE[number % len(PEOPLE)], "item": ITEMS[number % len(ITEMS)], "total": total}


def _jobs(site: Site) -> None:
    site.hold()
    site.job({f"page-{each:03}": f"/ok/{40_000 + each * 901}/{each}" for each in range(120)}, tenant="acme")
    site.job({f"scan-{each:02}": f"/status/410/{each}" for each in range(6)}, tenant="initech", job_type="documents")
    site.job(
        {f"scan-{each:02}": f"/ok/{90_000 + each * 77}" for each in range(31)}, tenant="initech", job_type="documents"
    )
    site.job({f"picture-{each:03}": _picture(site, each) for each in range(80)}, tenant="globex")
    site.job({f"picture-{each:03}": f"/ok/{70_000 + each * 211}/{each}" for each in range(64)}, tenant="globex")
    site.job({f"page-{each:03}": _paused(each, 13) for each in range(84)}, tenant="acme")
    site.job({f"chapter-{each:02}": _paused(each, 9) for each in range(22)}, tenant="initech", job_type="documents")


def _picture(site: Site, number: int) -> str:
    host = f"127.0.0.{1 + number % 3}"
    if number % 11 == 5:
        return site.files.url(f"/status/404/{number}", host)
    if number % 17 == 3:
        return site.files.url(f"/truncated/100/{number}?size=5000", host)
    return site.files.url(f"/bomb/{number}" if number == 40 else f"/ok/{30_000 + number * 403}/{number}", host)


def _paused(number: int, held: int) -> str:
    """So many of them are still under way when the picture is taken."""
    return f"/hold/{number}" if number < held else f"/ok/{20_000 + number * 311}/{number}"
