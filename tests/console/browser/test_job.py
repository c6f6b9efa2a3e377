"""One job, in a browser: watched to its end, and its failures sent back."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, Page, Request, Route, expect

from tests.console.browser.conftest import DESK, PHONE, OpenPage, is_wider_than_its_window
from tests.console.browser.site import Site


@pytest.fixture
def held(site: Site) -> Iterator[Site]:
    """What is asked of `/hold` waits until the test lets it go."""
    site.hold()
    yield site
    site.let_go()


def log(page: Page) -> Locator:
    return page.get_by_role("log", name="log of the job")


def resource(page: Page, name: str) -> Locator:
    return page.get_by_role("region", name="resources").get_by_role("row").filter(has_text=name)


def test_it_is_watched_to_its_end(open_page: OpenPage, held: Site) -> None:
    job = held.job({"cat": "/ok/1000", "dog": "/ok/2048", "slow": "/hold/slow"})
    page = open_page(held.base, f"#/jobs/{job}")
    progress = page.get_by_role("region", name="progress")
    expect(progress).to_contain_text("2 of 3 stored, 1 to go")
    expect(page.locator(".page-head")).to_contain_text("in progress")
    expect(log(page)).to_contain_text("stored 2048 bytes")
    expect(resource(page, "slow")).to_contain_text("in progress")
    held.let_go()
    expect(progress).to_contain_text("3 of 3 stored")
    expect(page.locator(".page-head")).to_contain_text("completed")
    expect(log(page)).to_contain_text("stored 10 bytes")
    expect(page.locator(".log")).to_contain_text("the job has ended")
    expect(resource(page, "dog")).to_contain_text("2.0 KiB")
    expect(resource(page, "dog")).to_contain_text(f"127.0.0.1:{held.files.port}")


def test_bytes_are_shown_while_a_file_is_under_way(open_page: OpenPage, held: Site) -> None:
    late = held.files.url("/retry-after/20/late").replace("127.0.0.1", "127.0.0.2")
    job = held.job({"cat": "/ok/2048", "film": "/hang-body/film", "late": late})
    progress = open_page(held.base, f"#/jobs/{job}").get_by_role("region", name="progress")
    expect(progress).to_contain_text("2.0 KiB stored, 6 B under way")
    expect(progress).to_contain_text("1 task waits for 127.0.0.2, which asked to wait until 20")


def test_the_log_is_filtered_by_level_and_words(open_page: OpenPage, site: Site) -> None:
    job = site.job({"good": "/ok/100", "gone": "/status/404", "sad": "/status/503"})
    page = open_page(site.base, f"#/jobs/{job}")
    lines = log(page).locator(".log-line")
    expect(page.locator(".log")).to_contain_text("the job has ended")
    expect(lines.filter(has_text="stored 100 bytes")).to_have_count(1)
    page.get_by_label("Level").select_option("error and worse")
    expect(lines.locator(".log-level")).to_have_text(["error", "error"])
    page.get_by_label("With these words").fill("sad")
    expect(lines).to_have_count(1)
    expect(lines).to_contain_text("DOWNLOAD_HTTP_STATUS")
    page.get_by_label("Level").select_option("all")
    expect(lines.filter(has_text="the next is in")).to_have_count(1)
    expect(lines.filter(has_text="good")).to_have_count(0)


def test_the_log_follows_until_somebody_reads_above(open_page: OpenPage, held: Site) -> None:
    many = {f"picture-{number:03}": f"/ok/{number + 1}" for number in range(40)}
    job = held.job(many | {"slow": "/hold/slow"})
    page = open_page(held.base, f"#/jobs/{job}")
    follow = page.get_by_label("follow")
    expect(log(page).locator(".log-line").filter(has_text="stored")).to_have_count(40)
    expect(follow).to_be_checked()
    log(page).evaluate("lines => lines.scrollTo(0, 0)")
    expect(follow).not_to_be_checked()
    held.let_go()
    expect(log(page)).to_contain_text("stored 10 bytes")
    assert log(page).evaluate("lines => lines.scrollTop") == 0
    follow.check()
    expect(log(page).locator(".log-line").last).to_be_in_viewport()


def test_of_a_long_log_the_newest_lines_are_shown(open_page: OpenPage, site: Site) -> None:
    job = site.job({f"picture-{number:03}": f"/ok/{number + 1}" for number in range(400)})
    page = open_page(site.base, f"#/jobs/{job}")
    expect(page.locator(".log")).to_contain_text("1200 lines, the last 1000 shown · the job has ended")
    expect(log(page).locator(".log-line")).to_have_count(1000)
    expect(page.get_by_role("region", name="resources").get_by_role("row")).to_have_count(101)
    page.get_by_role("button", name="Show 100 more of 400").click()
    page.get_by_role("button", name="Show 200 more of 400").click()
    expect(page.get_by_role("region", name="resources").get_by_role("row")).to_have_count(401)
    expect(page.get_by_role("button", name="more of 400")).to_have_count(0)


def test_failures_are_told_by_code_and_host(open_page: OpenPage, site: Site) -> None:
    elsewhere = site.files.url("/status/410", host="localhost")
    job = site.job({"a": "/status/404", "b": "/bomb", "c": elsewhere, "d": "/ok/10"})
    page = open_page(site.base, f"#/jobs/{job}")
    by_code = page.get_by_role("region", name="failures by code")
    expect(by_code.get_by_role("row").filter(has_text="DOWNLOAD_HTTP_STATUS")).to_contain_text("2")
    expect(by_code).to_contain_text("it grows more than JOBS_MAX_RATIO times by decompression")
    by_host = page.get_by_role("region", name="failures by host")
    expect(by_host.get_by_role("row").filter(has_text=f"localhost:{site.files.port}")).to_contain_text("1")
    expect(by_host.get_by_role("row").filter(has_text=f"127.0.0.1:{site.files.port}")).to_contain_text("2")
    page.get_by_label("Id, host, code or key").fill("bomb")
    expect(resource(page, "DOWNLOAD_BOMB")).to_have_count(1)
    expect(page.get_by_role("region", name="resources").get_by_role("row")).to_have_count(2)


def test_what_failed_is_replayed_and_stored(open_page: OpenPage, site: Site) -> None:
    job = site.job({"flaky": "/flaky/2/replayed-in-the-page", "fine": "/ok/10"})
    page = open_page(site.base, f"#/jobs/{job}")
    progress = page.get_by_role("region", name="progress")
    expect(progress).to_contain_text("1 of 2 stored, 1 failed")
    expect(progress).to_contain_text("1 dead letter open")
    page.get_by_role("button", name="Replay what failed…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Replay 1 dead letter of this job?")
    expect(dialog).to_contain_text("1 task of 1 job is published again and tried from the first attempt on.")
    dialog.get_by_role("button", name="Replay 1").click()
    expect(page.get_by_text("1 task published again")).to_be_visible()
    expect(progress).to_contain_text("2 of 2 stored")
    expect(page.locator(".page-head")).to_contain_text("completed")
    expect(resource(page, "flaky")).to_contain_text("stored")
    expect(log(page).locator(".log-line").filter(has_text="flaky").filter(has_text="stored 100 bytes")).to_have_count(1)


def test_the_log_of_a_replay_is_shown_though_nobody_looked_while_it_ran(open_page: OpenPage, site: Site) -> None:
    """The page asks every second, and a replay may take less: it never sees the job under way."""
    job = site.job({"quick": "/flaky/2/replayed-between-two-looks"})
    ended = ""

    def only_when_ended(route: Route) -> None:
        nonlocal ended
        told = route.fetch().text()
        if json.loads(told)["state"] in {"partial", "completed", "failed"}:
            ended = told
        route.fulfill(body=ended or told, content_type="application/json")

    read = 0

    def is_log_read_twice(request: Request) -> bool:
        nonlocal read
        read += f"/v2/jobs/{job}/logs" in request.url
        return read == 2  # once more, for what was told at the end; then it is not asked for again

    page = open_page(site.base, "#/jobs")
    page.route(f"**/v2/jobs/{job}", only_when_ended)
    with page.expect_event("requestfinished", is_log_read_twice):
        page.goto(f"{page.url.partition('#')[0]}#/jobs/{job}")
    expect(page.get_by_text("the job has ended")).to_be_visible()
    page.get_by_role("button", name="Replay what failed…").click()
    page.get_by_role("dialog").get_by_role("button", name="Replay 1").click()
    expect(page.get_by_role("region", name="progress")).to_contain_text("1 of 1 stored")
    expect(log(page).locator(".log-line").filter(has_text="stored 100 bytes")).to_have_count(1)


def test_what_failed_is_discarded(open_page: OpenPage, site: Site) -> None:
    job = site.job({"gone": "/status/410/discarded"})
    page = open_page(site.base, f"#/jobs/{job}")
    page.get_by_role("button", name="Discard…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("cannot be replayed from here")
    expect(dialog.get_by_role("button", name="Discard 1")).to_be_disabled()
    dialog.get_by_label("Type discard 1 to go on").fill("discard 1")
    dialog.get_by_role("button", name="Discard 1").click()
    expect(page.get_by_text("its dead letters were dealt with")).to_be_visible()
    page.get_by_role("button", name="Replay what failed…").click()
    expect(page.get_by_text("there is none any more")).to_be_visible()


def test_a_job_that_nobody_knows_is_said(open_page: OpenPage, site: Site, tolerate: list[str]) -> None:
    tolerate.append("404")
    page = open_page(site.base, "#/jobs/nobody-is-called-this")
    expect(page.get_by_role("alert")).to_contain_text("there is no job 'nobody-is-called-this' in the ledger")


@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_there_is_room_for_it(open_page: OpenPage, site: Site, size: tuple[int, int], theme: str) -> None:
    job = site.job({"cat": "/ok/1000", "a-rather-long-name-of-a-resource-" * 3: "/status/404"})
    page = open_page(site.base, f"#/jobs/{job}", size=size, theme=theme)
    expect(page.get_by_role("region", name="progress")).to_contain_text("1 of 2 stored, 1 failed")
    expect(log(page)).to_contain_text("stored 1000 bytes")
    assert not is_wider_than_its_window(page)


def test_it_is_paused_resumed_cancelled_and_requeued(open_page: OpenPage, held: Site) -> None:
    job = held.job({"cat": "/ok/1000", "slow": "/hold/held"})
    page = open_page(held.base, f"#/jobs/{job}")
    state = page.locator(".page-head")
    expect(page.get_by_role("region", name="progress")).to_contain_text("1 of 2 stored, 1 to go")
    page.get_by_role("button", name="Pause").click()
    expect(state).to_contain_text("paused")
    page.get_by_role("button", name="Resume").click()
    expect(state).to_contain_text("in progress")
    page.get_by_role("button", name="Cancel…").click()
    page.get_by_role("button", name="Cancel the job").click()
    expect(state).to_contain_text("cancelled")
    held.let_go()
    page.get_by_role("button", name="Requeue").click()
    expect(page.locator(".page-head")).to_contain_text("completed")
