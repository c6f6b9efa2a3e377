"""Dead letters of the bus, in a browser: looked at, sent back, discarded."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from playwright.sync_api import expect
from prometheus_client import CollectorRegistry

from slipstream.bus import open_bus
from tests.bus.sites import shared_site
from tests.bus.sites.site import Site
from tests.bus.test_dead_letters import bury
from tests.console.browser.conftest import OpenPage
from tests.console.browser.site import _environment, _started
from tests.run_services import RunServices

PREFIX = f"console-{os.getpid()}."


@pytest.fixture(scope="module", params=["nats", "http"])
def engine(request: pytest.FixtureRequest, services: RunServices) -> Iterator[Site]:
    made = shared_site(request.param, services)
    yield made
    made.close()


@pytest.fixture(scope="module")
def base(engine: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A console on the engine, for the topics of this test alone."""
    folder = tmp_path_factory.mktemp("dead-letters-of-the-bus")
    variables = {**engine.environment(), "BUS_PREFIX": PREFIX}
    with contextlib.ExitStack() as stack:
        environment = _environment(folder, "", str(folder / "slips.db")) | variables
        console = _started(stack, environment, "console", "--port", "0")
        yield console.wait_for(r"(http://127\.0\.0\.1:\d+)")[1]


def bury_three(engine: Site) -> None:
    async def three() -> None:
        settings = {**engine.settings(), "prefix": PREFIX, "registry": CollectorRegistry()}
        async with open_bus(**settings) as bus:
            await bury(bus, "orders", b"one", b"two", b"three")

    with ThreadPoolExecutor(1) as thread:  # this one has the event loop of the browser
        thread.submit(asyncio.run, three()).result()


def publish_many(engine: Site, topic: str, count: int) -> None:
    async def many() -> None:
        settings = {**engine.settings(), "prefix": PREFIX, "registry": CollectorRegistry()}
        async with open_bus(**settings) as bus:
            for number in range(count):
                await bus.send(topic, f"{number}")
            await bus.flush()

    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, many()).result()


def test_there_is_a_page_for_every_hundred(open_page: OpenPage, base: str, engine: Site) -> None:
    if engine.driver != "nats":
        pytest.skip("it is the same page")
    publish_many(engine, "parcels", 1)
    publish_many(engine, "parcels.DLQ", 101)
    page = open_page(base, "#/bus-dead-letters?topic=parcels")
    letters = page.get_by_role("region", name="dead letters")
    expect(letters.get_by_role("row")).to_have_count(101)
    page.get_by_role("button", name="Next page").click()
    expect(letters.get_by_role("row")).to_have_count(2)
    expect(page.get_by_role("status").filter(has_text="dead letter")).to_contain_text("1 dead letter of page 2")
    page.get_by_role("button", name="Redrive 1").click()
    page.get_by_role("dialog").get_by_role("button", name="Redrive 1").click()
    expect(letters.get_by_role("row")).to_have_count(101)
    expect(page.get_by_role("button", name="Next page")).to_have_count(0)


def test_dead_letters_are_looked_at_sent_back_and_discarded(open_page: OpenPage, base: str, engine: Site) -> None:
    bury_three(engine)
    page = open_page(base, "#/bus-dead-letters?topic=orders")
    letters = page.get_by_role("region", name="dead letters")
    expect(letters.get_by_role("row")).to_have_count(4)
    expect(letters).to_contain_text("ValueError: no customer")
    letters.get_by_role("button").first.click()
    opened = page.get_by_role("region", name=re.compile(r"orders\.DLQ"))
    expect(opened).to_contain_text("customerId=C-17")
    opened.get_by_role("button", name="Redrive").click()
    expect(page.get_by_text("was sent back to orders")).to_be_visible()
    expect(letters.get_by_role("row")).to_have_count(3)
    letters.get_by_role("button").first.click()
    page.get_by_role("button", name="Discard", exact=True).click()
    page.get_by_role("button", name="Discard it").click()
    expect(letters.get_by_role("row")).to_have_count(2)
    page.get_by_label("Group").fill("billing")
    page.get_by_label("Group").press("Enter")
    expect(page.get_by_text("No dead letter fits these choices.")).to_be_visible()
    page.get_by_label("Group").fill("")
    page.get_by_label("Group").press("Enter")
    page.get_by_role("button", name="Redrive 1").click()
    page.get_by_role("dialog").get_by_role("button", name="Redrive 1").click()
    expect(page.get_by_text("No dead letter fits these choices.")).to_be_visible()
