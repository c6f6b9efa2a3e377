"""Listening in on a server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from slipstream.bus import Bus, Stored, open_bus
from slipstream.bus.drivers.http.tap import Tap
from slipstream.client import AsyncClient
from tests.bus.recorder import Recorder
from tests.bus.sites.http import HttpSite
from tests.client.loop import in_loop


@pytest.fixture(autouse=True)
def _look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """New topics are looked for every second: how often makes no difference to what is heard."""
    monkeypatch.setattr("slipstream.bus.drivers.http.tap.LOOK_EVERY_S", 0.1)


@contextlib.asynccontextmanager
async def tapped(bus: Bus, pattern: str) -> AsyncIterator[asyncio.Queue[Stored]]:
    found: asyncio.Queue[Stored] = asyncio.Queue()
    listening = asyncio.Event()

    async def listen() -> None:
        async for stored in bus.tap(pattern, listening=listening):
            await found.put(stored)

    task = asyncio.create_task(listen())
    try:
        await listening.wait()
        yield found
    finally:
        task.cancel()
        await asyncio.wait({task})


@in_loop
async def test_a_tap_hears_what_is_published_from_now_on_and_takes_nothing_from_a_group(shared_site: HttpSite) -> None:
    async with open_bus(**shared_site.settings(), prefix="tap1.", partitions=2) as bus:
        await bus.publish("internal.old", "before")
        async with tapped(bus, "internal.*") as found:
            await bus.publish("internal.old", "a", {"n": 1}, key="k")
            first = await found.get()
            await bus.publish("external", "not this")
            await bus.publish("internal.new", "b")  # no such topic when the tap began
            second = await found.get()
            assert found.empty()
        assert (first.topic, first.data, first.key, first.attributes["n"]) == ("internal.old", b"a", "k", "1")
        assert (second.topic, second.data) == ("internal.new", b"b")
        handled = Recorder()
        await bus.subscribe("internal.old", "g", handled)
        assert [message.data for message in await handled.have(2)] == [b"before", b"a"]


@in_loop
async def test_a_tap_survives_the_end_of_its_server(own_site: HttpSite, topic: str) -> None:
    async with open_bus(**own_site.settings()) as bus:
        await bus.publish(topic, "before")
        async with tapped(bus, topic) as found:
            await bus.publish(topic, "a")
            assert (await found.get()).data == b"a"
            own_site.stop_server()
            await asyncio.to_thread(own_site.start_server)
            await bus.publish(topic, "b")
            assert (await found.get()).data == b"b"


@in_loop
async def test_a_tap_waits_for_its_server_longer_than_a_client_repeats_a_request(
    own_site: HttpSite, topic: str
) -> None:
    own_site.server.create(topic)
    listening = asyncio.Event()
    async with AsyncClient(own_site.server.base, retry_for_ms=0) as client:
        messages = Tap(client, "").messages(listening)
        async with contextlib.aclosing(messages):
            coming = asyncio.ensure_future(anext(messages))
            await listening.wait()
            own_site.stop_server()
            await asyncio.to_thread(own_site.start_server)
            own_site.server.produce(topic, "a")
            assert (await coming).data == b"a"


@in_loop
async def test_a_topic_that_is_made_again_is_heard_from_its_start(shared_site: HttpSite) -> None:
    async with open_bus(**shared_site.settings()) as bus:
        for n in range(5):
            await bus.publish("tap3", str(n))
        async with tapped(bus, "tap3") as found:
            await bus.native.delete_topic("tap3")
            await bus.publish("tap3", "again")
            stored = await found.get()
            assert (stored.data, stored.offset) == (b"again", 0)
