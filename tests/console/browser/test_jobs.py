"""The list of jobs, in a browser."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.console.browser.conftest import PHONE, OpenPage, is_wider_than_its_window
from tests.console.browser.site import Site


def test_each_says_how_far_it_is(open_page: OpenPage, site: Site) -> None:
    job = site.job({"a": "/ok/100", "b": "/ok/200", "c": "/status/404"}, tenant="far")
    page = open_page(site.base, "#/jobs?tenant=far")
    row = page.get_by_role("row").filter(has_text=job)
    expect(row).to_contain_text("2 of 3 stored, 1 failed: DOWNLOAD_HTTP_STATUS")
    expect(row).to_contain_text("partial")
    expect(row.get_by_role("img", name="2 of 3 stored, 1 failed")).to_be_visible()


def test_jobs_are_chosen_by_state_tenant_and_type(open_page: OpenPage, site: Site) -> None:
    done = site.job({"a": "/ok/100"}, tenant="chosen", job_type="photos")
    failed = site.job({"a": "/status/404"}, tenant="chosen", job_type="papers")
    page = open_page(site.base, "#/jobs")
    page.get_by_label("Tenant").fill("chosen")
    jobs = page.get_by_role("region", name="jobs")
    expect(jobs.get_by_role("link")).to_have_text([failed, done])
    page.get_by_role("navigation", name="state of jobs").get_by_role("link", name="Failed").click()
    expect(jobs.get_by_role("link")).to_have_text([failed])
    page.get_by_role("navigation", name="state of jobs").get_by_role("link", name="All").click()
    expect(jobs.get_by_role("link")).to_have_text([failed, done])
    page.get_by_label("Type").fill("photos")
    expect(jobs.get_by_role("link")).to_have_text([done])


def test_older_ones_are_on_the_next_page(open_page: OpenPage, site: Site) -> None:
    first = site.job({"a": "/ok/10"}, tenant="many")
    for _ in range(50):
        site.job({"a": "/ok/10"}, tenant="many")
    page = open_page(site.base, "#/jobs?tenant=many")
    jobs = page.get_by_role("region", name="jobs")
    expect(jobs.get_by_role("link")).to_have_count(50)
    page.get_by_role("link", name="Older").click()
    expect(jobs.get_by_role("link")).to_have_text([first])
    page.get_by_role("link", name="Newest").click()
    expect(jobs.get_by_role("link")).to_have_count(50)


def test_where_there_is_none_it_says_so(open_page: OpenPage, site: Site) -> None:
    page = open_page(site.base, "#/jobs?tenant=nobody-is-called-this")
    expect(page.get_by_text("No job is like that.")).to_be_visible()


def test_a_phone_has_room_for_it(open_page: OpenPage, site: Site) -> None:
    job = site.job({"a": "/ok/100"}, tenant="phone")
    page = open_page(site.base, "#/jobs?tenant=phone", size=PHONE, theme="dark")
    expect(page.get_by_role("link", name=job)).to_be_visible()
    assert not is_wider_than_its_window(page)
