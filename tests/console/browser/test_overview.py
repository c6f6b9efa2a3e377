"""The overview, in a browser: what a person sees who is called because messages are stuck."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

from playwright.sync_api import Page, expect

from tests.cli.platform import platform
from tests.conftest import StartServer
from tests.console.browser.conftest import OpenPage, Picture
from tests.console.browser.site import Site

LIGHT = ("--without", "pipeline", "--without", "jobs", "--without", "downloads")


def number(page: Page, label: str) -> str:
    return page.locator(".number-card").filter(has_text=label).locator("strong").inner_text()


def test_a_quiet_system_says_so_in_one_line(start_server: StartServer, open_page: OpenPage) -> None:
    server = start_server()
    page = open_page(server.base)
    expect(page.get_by_text("All is quiet")).to_be_visible()
    expect(page.get_by_text("There are no topics yet")).to_be_visible()
    assert [number(page, label) for label in ("Oldest waiting", "In flight", "Dead letters")] == ["none", "0", "0"]


def test_what_is_wrong_is_said_and_its_button_leads_to_where_it_is_mended(
    start_server: StartServer, open_page: OpenPage
) -> None:
    server = start_server()
    server.create("orders")
    for value in ("one", "two"):
        server.produce("orders", value, retry_policy={"max_attempts": 1})
    (taken, _) = server.take("orders", 2, group="billing")
    page = open_page(server.base)
    expect(page.locator(".number-card").filter(has_text="In flight").locator("strong")).to_have_text("2")
    server.nack("orders", taken, "the card is stolen", group="billing")
    line = page.locator(".problem").filter(has_text="dead-lettered")
    expect(line).to_contain_text("1 message of orders is dead-lettered")
    expect(line).to_contain_text("Warning")
    expect(page.get_by_role("link", name=re.compile("^Dead letters"))).to_contain_text("1")
    line.get_by_role("link", name="Redrive…").click()
    expect(page.get_by_role("heading", level=1, name="Dead letters")).to_be_visible()
    expect(page.get_by_text("the card is stolen").first).to_be_visible()


def test_a_paused_group_is_told_of_until_it_goes_on(start_server: StartServer, open_page: OpenPage) -> None:
    server = start_server()
    server.create("orders")
    server.produce("orders", "one")
    server.take("orders", group="billing")
    assert server.post("/v2/topics/orders/groups/billing/pause").status_code < 300
    page = open_page(server.base)
    line = page.locator(".problem").filter(has_text="billing")
    expect(line).to_contain_text("paused")
    line.get_by_role("link", name="Resume…").click()
    expect(page).to_have_url(re.compile("#/groups/orders/billing$"))
    page.get_by_role("button", name="Resume").click()
    page.get_by_role("link", name="Overview").click()
    expect(page.locator(".problem").filter(has_text="paused")).to_have_count(0)


def test_a_poison_message_is_named_and_stays_acknowledged_over_a_restart(
    start_server: StartServer, open_page: OpenPage, tolerate: list[str], picture: Picture
) -> None:
    tolerate += ["ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_CONNECTION_RESET"]
    server = start_server()
    server.create("orders")
    policy = {"max_attempts": 0, "backoff_ms": 1, "max_backoff_ms": 1}
    server.produce("orders", "{nonsense", retry_policy=policy)
    for _ in range(4):
        (taken,) = server.take("orders", group="billing")
        server.nack("orders", taken, "DecodeError: JSON is malformed", group="billing")
    page = open_page(server.base)
    line = page.locator(".problem").filter(has_text="poison message orders/0/0")
    expect(line).to_contain_text("has failed 4 times with the same error in group billing")
    expect(line).to_contain_text("DecodeError: JSON is malformed. More consumers do not help")
    expect(line.get_by_role("link", name="Show message")).to_have_attribute("href", "#/groups/orders/billing")
    picture(page, "overview-poison")
    line.get_by_role("button", name="Acknowledge").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Your name").fill("Ada")
    dialog.get_by_role("button", name="Acknowledge").click()
    expect(page.get_by_text("Every problem is acknowledged.")).to_be_visible()
    server.crash()
    server.start()
    page.reload()
    page.get_by_text("1 acknowledged problem").click()
    line = page.locator(".acknowledged .problem")
    expect(line).to_contain_text("acknowledged by Ada")
    line.get_by_role("button", name="Show again").click()
    line = page.locator(".problem.warning").filter(has_text="poison message")
    line.get_by_role("button", name="Retry now").click()
    expect(page.get_by_text("The message is due now.")).to_be_visible()
    line.get_by_role("button", name="Reject…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Reason").fill("it is no JSON")
    dialog.get_by_role("button", name="Reject").click()
    expect(line).to_have_count(0)
    (letter,) = server.get("/v2/dead-letters?topic=orders").json()["dead_letters"]
    assert (letter["offset"], "it is no JSON" in str(letter)) == (0, True)


def test_dead_letters_are_counted_with_slips_and_downloads_and_each_leads_there(
    site: Site, open_page: OpenPage, picture: Picture
) -> None:
    site.job({"page": "/status/404"})
    site.order(broken="ship")
    page = open_page(site.base)
    card = page.locator(".number-card").filter(has_text="Dead letters")
    expect(card.get_by_role("link", name=re.compile(r"download"))).to_have_attribute("href", "#/jobs/dead-letters")
    expect(card.get_by_role("link", name=re.compile(r"slip"))).to_have_attribute("href", "#/slips?state=dead-lettered")
    counts = [int(number) for number in re.findall(r"(\d+) (?:message|slip|download)", card.inner_text())]
    assert len(counts) >= 2
    assert int(card.locator("strong").inner_text()) == sum(counts)
    picture(page, "overview-dead-letters")
    card.get_by_role("link", name=re.compile(r"download")).click()
    expect(page.get_by_role("heading", level=1, name="Dead letters of jobs")).to_be_visible()


def test_a_part_that_was_killed_is_shown_and_so_is_its_return(open_page: OpenPage, tmp_path: Path) -> None:
    with platform(tmp_path, *LIGHT, UP_RESTART_BASE_MS="5000") as up:
        up.wait_for("^open http")
        page = open_page(up.part("broker").url)
        row = page.get_by_role("region", name="what runs").get_by_role("row").filter(has_text="slips")
        expect(row).to_contain_text("running")
        pid = up.part("slips").pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        expect(row).to_contain_text("crashed")
        expect(page.locator(".problem").filter(has_text="part slips has crashed")).to_contain_text("SIGKILL")
        up.until("slips", "running", restarts=1)
        expect(row).to_contain_text("running")
        expect(row).to_contain_text("ended before: killed by SIGKILL")
        page.locator(".problem").filter(has_text="part slips was restarted").get_by_role(
            "link", name="Show log"
        ).click()
        expect(row.locator("pre")).to_be_visible()
        expect(row.locator("pre")).to_contain_text("at work on")
        page.close()


def test_a_server_that_is_gone_is_said_and_found_again(
    start_server: StartServer, open_page: OpenPage, tolerate: list[str]
) -> None:
    tolerate += ["ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_CONNECTION_RESET"]
    server = start_server()
    page = open_page(server.base)
    expect(page.get_by_text("All is quiet")).to_be_visible()
    server.crash()
    expect(page.locator("#status")).to_contain_text("no connection")
    expect(page.get_by_role("alert")).to_contain_text("What is shown is what it said last")
    expect(page.get_by_text("All is quiet")).to_have_count(0)
    server.start()
    expect(page.locator("#status")).to_contain_text("live")
    expect(page.get_by_role("alert")).to_have_count(0)
    expect(page.get_by_text("All is quiet")).to_be_visible()
