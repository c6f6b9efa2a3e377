"""Dead letters of the bus on real engines, as the console's process lists and handles them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator

import pytest
from prometheus_client import CollectorRegistry

from slipstream.bus import Bus, load_settings, open_bus
from slipstream.console import Sources, create_console
from slipstream.console.bus_dead_letters import BusDeadLetters
from slipstream.console.connected_bus import ConnectedBus
from tests.bus.conftest import topic
from tests.bus.sites import shared_site
from tests.bus.sites.site import Site
from tests.bus.test_dead_letters import bury
from tests.client.loop import in_loop
from tests.console.site import Numbers, ask, listening
from tests.run_services import RunServices

__all__ = ["topic"]


@pytest.fixture(scope="module", params=["http", "nats"])
def site(request: pytest.FixtureRequest, services: RunServices) -> Iterator[Site]:
    made = shared_site(request.param, services)
    yield made
    made.close()


@contextlib.asynccontextmanager
async def looking(site: Site, prefix: str = "") -> AsyncIterator[tuple[str, Bus]]:
    settings = load_settings({**site.settings(), "prefix": prefix}, {})
    console = create_console(Sources(Numbers(), bus_dead_letters=BusDeadLetters(ConnectedBus(settings))))
    async with open_bus(settings, registry=CollectorRegistry()) as bus:
        await console.open()
        try:
            async with listening(console) as url:
                yield f"{url}/v2/bus-dead-letters", bus
                console.stop()
        finally:
            await console.close()


@in_loop
async def test_dead_letters_are_listed_shown_sent_back_and_discarded(site: Site, topic: str) -> None:
    async with looking(site, "dev.") as (url, bus):
        await bury(bus, topic, b"one", b"two", b"three")
        status, answer, _ = await ask(f"{url}?topic={topic}")
        assert (status, answer["next"]) == (200, None)
        one, two, three = answer["dead_letters"]
        assert (one["origin"], one["group"], one["value"]) == (topic, "shipping", "one")
        assert (one["reason"], one["attempts"]) == ("ValueError: no customer", 1)
        _, page, _ = await ask(f"{url}?topic={topic}&limit=2")
        assert page == {"dead_letters": [one, two], "next": f"{topic}.DLQ/0/{two['offset']}"}
        _, page, _ = await ask(f"{url}?topic={topic}&limit=2&after={page['next']}")
        assert page == {"dead_letters": [three], "next": None}
        assert (await ask(f"{url}?topic={topic}&group=billing"))[1]["dead_letters"] == []
        assert (await ask(f"{url}?topic={topic}&error=CUSTOMER"))[1]["dead_letters"] == [one, two, three]
        place = f"{url}/{topic}.DLQ/0/{one['offset']}"
        assert (await ask(place))[1] == one
        assert (await ask(f"{place}/redrive", "POST", json={}))[1]["redriven"] == 1
        assert [stored.data async for stored in bus.read(topic)] == [b"one", b"two", b"three", b"one"]
        assert (await ask(place))[0] == 404
        assert (await ask(f"{url}/{topic}.DLQ/0/{two['offset']}", "DELETE"))[1]["discarded"] == 1
        assert (await ask(f"{url}?topic={topic}"))[1]["dead_letters"] == [three]
        assert (await ask(f"{url}?topic=dev.{topic}"))[1]["dead_letters"] == [three], "as the overview names it"


@in_loop
async def test_a_list_has_only_the_beginning_of_large_messages(site: Site, topic: str) -> None:
    async with looking(site) as (url, bus):
        await bus.publish(f"{topic}.DLQ", "x" * 5_000)
        _, page, _ = await ask(f"{url}?topic={topic}")
        (letter,) = page["dead_letters"]
        assert letter["value"] == "x" * 2_000
        place = f"{url}/{topic}.DLQ/0/{letter['offset']}"
        assert (await ask(place))[1]["value"] == "x" * 5_000
        status, answer, _ = await ask(f"{place}/redrive", "POST", json={})
        assert (status, answer["error"]) == (409, "FAILED_PRECONDITION"), "its topic is missing, and not the letter"


@in_loop
async def test_what_makes_no_sense_is_refused(site: Site, topic: str) -> None:
    async with looking(site) as (url, _):
        assert (await ask(f"{url}/{topic}.DLQ/0/7"))[0] == 404
        assert (await ask(f"{url}/{topic}.DLQ/0/7/redrive", "POST", json={"where": "there"}))[0] == 400
        assert (await ask(f"{url}?limit=0"))[0] == 400
        assert (await ask(f"{url}?after=17"))[0] == 400
        assert (await ask(f"{url}?topic=no%20topic"))[0] == 400
