"""Taking messages from a server that is deleted from, killed, or slow."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest

from slipstream.bus import Message, open_bus
from slipstream.client import AsyncClient
from tests.bus.recorder import Recorder
from tests.bus.sites.http import HttpSite
from tests.client.between import answer, between, hold
from tests.client.loop import in_loop, until


@in_loop
async def test_a_topic_that_is_deleted_meanwhile_is_made_again_and_subscribed_to(shared_site: HttpSite) -> None:
    async with open_bus(**shared_site.settings()) as bus:
        handled = Recorder()
        await bus.subscribe("deleted", "g", handled)
        await bus.publish("deleted", "before")
        await handled.until(lambda: b"before" in handled.data)
        await bus.native.delete_topic("deleted")
        await until(lambda: _is_there(bus.native, "deleted"))
        await bus.publish("deleted", "after")
        await handled.until(lambda: b"after" in handled.data)


async def _is_there(client: AsyncClient, name: str) -> bool:
    return name in [topic.name for topic in await client.topics()]


@in_loop
async def test_a_handler_cannot_finish_the_message_that_has_the_place_of_its_own(shared_site: HttpSite) -> None:
    async with open_bus(**shared_site.settings()) as bus:
        old, new = asyncio.Event(), asyncio.Event()
        began: asyncio.Queue[str] = asyncio.Queue()

        async def handle(message: Message) -> None:
            await began.put(message.text)
            await (old if message.text == "old" else new).wait()

        subscription = await bus.subscribe("place", "g", handle)
        await bus.publish("place", "old")
        assert await began.get() == "old"
        await bus.native.delete_topic("place")
        assert await bus.publish("place", "new") == "0/0"
        assert await began.get() == "new", "it is another message, though it has the same place"
        old.set()
        while subscription.in_flight > 1:
            await asyncio.sleep(0)
        assert (await bus.native.group("place", "g")).lag == 1, "what was said about the old one does not count for it"
        new.set()


@in_loop
async def test_nothing_is_lost_and_what_was_acked_stays_acked_though_the_server_is_killed(
    own_site: HttpSite, topic: str
) -> None:
    handled = Recorder()
    texts = [str(n) for n in range(200)]
    async with open_bus(**own_site.settings()) as bus:
        subscription = await bus.subscribe(topic, "g", handled, ack_deadline=10)
        for count, text in enumerate(texts):
            await bus.send(topic, text)
            if count == 100:
                own_site.stop_server()
                await asyncio.to_thread(own_site.start_server)
        await bus.flush()
        await handled.until(lambda: len(set(handled.data)) == len(texts))
        while subscription.in_flight:
            await asyncio.sleep(0.01)
    async with open_bus(**own_site.settings()) as bus:
        again = Recorder()
        await bus.subscribe(topic, "g", again)
        await bus.publish(topic, "last")
        await again.until(lambda: b"last" in again.data)
        assert again.data == [b"last"]


@in_loop
async def test_trouble_is_told_once_and_so_is_its_end(
    own_site: HttpSite, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "slipstream.bus.drivers.http")
    async with open_bus(**own_site.settings()) as bus:
        handled = Recorder()
        subscription = await bus.subscribe(topic, "g", handled)
        own_site.stop_server()
        while subscription._source._failures < 3:  # type: ignore[attr-defined]
            await asyncio.sleep(0.01)
        await asyncio.to_thread(own_site.start_server)
        await bus.publish(topic, "a")
        await handled.until(lambda: b"a" in handled.data)
        told = [record for record in caplog.records if record.name == "slipstream.bus.drivers.http.source"]
        assert [record.levelname for record in told] == ["WARNING", "INFO"]
        assert "no messages for now: cannot reach" in told[0].getMessage()


async def _until(event: asyncio.Event) -> None:
    await event.wait()


@in_loop
async def test_closing_does_not_wait_for_a_server_that_is_away(
    own_site: HttpSite, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slipstream.bus.subscription.LAST_WORDS_S", 0.2)
    bus = await open_bus(**own_site.settings(), drain_timeout_ms=300)
    go_on = asyncio.Event()
    handled = Recorder(lambda _: _until(go_on))
    await bus.subscribe(topic, "g", handled)
    await bus.publish(topic, "a")
    await handled.until(lambda: b"a" in handled.data)
    own_site.stop_server()
    go_on.set()  # it is done, and there is nobody to tell
    began = time.monotonic()
    await bus.close()
    assert time.monotonic() - began < 20


@in_loop
async def test_closing_wakes_a_subscriber_that_waits_for_its_server(shared_site: HttpSite) -> None:
    async with between(shared_site.server.base) as middle:
        bus = await open_bus(driver="http", url=middle.url)
        middle.always["/v2/fetch"] = answer(503, Retry_After="30")
        subscription = await bus.subscribe("woken", "g", Recorder())
        while "/v2/fetch" not in middle.seen:
            await asyncio.sleep(0.01)
        began = time.monotonic()
        await subscription.close()
        assert time.monotonic() - began < 20
        await bus.close()


@in_loop
async def test_what_is_in_the_answer_when_the_subscriber_is_closed_is_handled(shared_site: HttpSite) -> None:
    async with (
        between(shared_site.server.base) as middle,
        open_bus(driver="http", url=middle.url) as bus,
    ):
        await bus.publish("last-answer", "a")
        middle.always["/v2/fetch"] = hold
        handled = Recorder()
        subscription = await bus.subscribe("last-answer", "g", handled)
        await middle.held.acquire()
        closing = asyncio.create_task(subscription.close())
        await asyncio.sleep(0)
        middle.release.set()
        await closing
        assert handled.data == [b"a"]
        assert (await bus.native.group("last-answer", "g")).lag == 0


@in_loop
async def test_a_deadline_that_the_server_refuses_is_not_asked_for_without_end(
    shared_site: HttpSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slipstream.bus.subscription.FAILURE_PAUSE_S", 0.05)
    async with open_bus(**shared_site.settings()) as bus:
        subscription = await bus.subscribe("refused", "g", Recorder(), ack_deadline=365 * 24 * 3600)
        while subscription.failure is None:
            await asyncio.sleep(0.01)
        assert "lease_ms" in str(subscription.failure)


@in_loop
async def test_a_retry_comes_when_the_bus_says_whatever_the_topic_says(shared_site: HttpSite) -> None:
    async with open_bus(**shared_site.settings()) as bus:
        shared_site.server.create("policy")
        patient = {"config": {"retry": {"backoff_ms": 3_600_000, "max_backoff_ms": 3_600_000}}}
        shared_site.server.request("PATCH", "/v2/topics/policy", json=patient).raise_for_status()
        attempts: asyncio.Queue[int] = asyncio.Queue()

        async def handle(message: Message) -> None:
            await attempts.put(message.attempt)
            raise ValueError(message.text)

        await bus.subscribe("policy", "g", handle, backoff=[0.01], max_deliver=3)
        await bus.publish("policy", "a")
        assert [await attempts.get() for _ in range(3)] == [1, 2, 3]


@in_loop
async def test_a_lease_that_is_anothers_by_now_is_noticed(shared_site: HttpSite) -> None:
    async with open_bus(**shared_site.settings()) as bus:
        cancelled: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def handle(message: Message) -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if not cancelled.done():
                    cancelled.set_result(message.text)
                raise

        await bus.subscribe("taken", "g", handle, ack_deadline=0.6)
        await bus.publish("taken", "a")
        while not (await bus.native.group("taken", "g")).in_flight:
            await asyncio.sleep(0.01)
        await bus.native.seek("taken", "g", to="latest")  # somebody takes it from the group
        assert await cancelled == "a"


@in_loop
async def test_the_lag_of_a_group_is_what_it_has_not_finished(shared_site: HttpSite) -> None:
    async with open_bus(**shared_site.settings()) as bus:
        go_on = asyncio.Event()
        handled = Recorder(lambda _: _until(go_on))
        subscription = await bus.subscribe("lag", "g", handled, max_in_flight=1)
        await asyncio.gather(*(bus.publish("lag", str(n)) for n in range(3)))
        await handled.until(lambda: b"0" in handled.data)
        assert await subscription._source.lag() == 3
        go_on.set()
