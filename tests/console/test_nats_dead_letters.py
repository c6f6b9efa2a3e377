"""Dead letters on a real NATS server, as the console's process lists and handles them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from prometheus_client import CollectorRegistry

from slipstream.bus import Bus, load_settings, open_bus
from slipstream.console import Sources, create_console
from slipstream.console.nats import NatsTopics, NotOnNats
from slipstream.console.nats_dead_letters import NatsDeadLetters
from tests.bus.conftest import topic
from tests.bus.drivers.nats.conftest import nats
from tests.bus.sites.nats import NatsSite
from tests.bus.test_dead_letters import bury
from tests.client.loop import in_loop
from tests.console.site import ask, listening

__all__ = ["nats", "topic"]


@contextlib.asynccontextmanager
async def looking(site: NatsSite, prefix: str = "") -> AsyncIterator[tuple[str, Bus]]:
    settings = load_settings({**site.settings(), "prefix": prefix}, {})
    topics = NatsTopics(settings)
    console = create_console(Sources(topics, more=[topics, NatsDeadLetters(topics)], rest=NotOnNats()))
    async with open_bus(settings, registry=CollectorRegistry()) as bus:
        await console.open()
        try:
            async with listening(console) as url:
                yield f"{url}/v2/bus-dead-letters", bus
                console.stop()
        finally:
            await console.close()


@in_loop
async def test_dead_letters_are_listed_shown_sent_back_and_discarded(nats: NatsSite, topic: str) -> None:
    async with looking(nats, "dev.") as (url, bus):
        await bury(bus, topic, b"one", b"two", b"three")
        status, answer, _ = await ask(f"{url}?topic={topic}")
        assert (status, answer["next"]) == (200, None)
        one, two, three = answer["dead_letters"]
        assert (one["origin"], one["group"], one["value"]) == (topic, "shipping", "one")
        assert (one["reason"], one["attempts"]) == ("ValueError: no customer", 1)
        _, page, _ = await ask(f"{url}?topic={topic}&limit=2")
        assert page == {"dead_letters": [one, two], "next": f"{topic}.DLQ/{two['offset']}"}
        _, page, _ = await ask(f"{url}?topic={topic}&limit=2&after={page['next']}")
        assert page == {"dead_letters": [three], "next": None}
        assert (await ask(f"{url}?topic={topic}&group=billing"))[1]["dead_letters"] == []
        assert (await ask(f"{url}?topic={topic}&error=CUSTOMER"))[1]["dead_letters"] == [one, two, three]
        place = f"{url}/{topic}.DLQ/{one['offset']}"
        assert (await ask(place))[1] == one
        assert (await ask(f"{place}/redrive", "POST", json={}))[1]["redriven"] == 1
        assert [stored.data async for stored in bus.read(topic)] == [b"one", b"two", b"three", b"one"]
        assert (await ask(place))[0] == 404
        assert (await ask(f"{url}/{topic}.DLQ/{two['offset']}", "DELETE"))[1]["discarded"] == 1
        assert (await ask(f"{url}?topic={topic}"))[1]["dead_letters"] == [three]


@in_loop
async def test_a_list_has_only_the_beginning_of_large_messages(nats: NatsSite, topic: str) -> None:
    async with looking(nats) as (url, bus):
        await bus.publish(f"{topic}.DLQ", "x" * 5_000)
        _, page, _ = await ask(f"{url}?topic={topic}")
        assert page["dead_letters"][0]["value"] == "x" * 2_000
        assert (await ask(f"{url}/{topic}.DLQ/1"))[1]["value"] == "x" * 5_000
        status, answer, _ = await ask(f"{url}/{topic}.DLQ/1/redrive", "POST", json={})
        assert (status, answer["error"]) == (409, "FAILED_PRECONDITION"), "its topic is missing, and not the letter"


@in_loop
async def test_what_makes_no_sense_is_refused(nats: NatsSite, topic: str) -> None:
    async with looking(nats) as (url, _):
        assert (await ask(f"{url}/{topic}.DLQ/7"))[0] == 404
        assert (await ask(f"{url}/{topic}.DLQ/7/redrive", "POST", json={"where": "there"}))[0] == 400
        assert (await ask(f"{url}?limit=0"))[0] == 400
        assert (await ask(f"{url}?after=17"))[0] == 400
        assert (await ask(f"{url}?topic=no%20topic"))[0] == 400
