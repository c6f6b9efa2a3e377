"""The engine goes down in mid-flow and comes back: nothing is lost, and nobody has to do anything about it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry

from slipstream.bus import Backoff, Message, open_bus
from tests.bus.conftest import DRIVERS
from tests.bus.consumer_process import ROOT
from tests.bus.recorder import Recorder, failing
from tests.bus.sites import make_site
from tests.bus.sites.site import Site
from tests.bus.test_bus_follow import numbers, publish, skip_without_log, take
from tests.client.loop import in_loop
from tests.forked import Forked


@pytest.fixture(scope="module", params=[driver for driver in DRIVERS if driver != "embedded"])
def stopped_now_and_then(request: pytest.FixtureRequest) -> Iterator[Site]:
    made = make_site(request.param)
    yield made
    made.close()


@pytest.fixture
def server_site(stopped_now_and_then: Site) -> Site:
    """A server that the test may stop and start, with topics of other tests on it."""
    stopped_now_and_then.ensure_started()
    return stopped_now_and_then


@in_loop
async def test_nothing_is_lost_when_the_server_is_killed_in_mid_flow(server_site: Site, topic: str) -> None:
    async with open_bus(registry=CollectorRegistry(), **server_site.settings()) as bus:
        handler = Recorder()
        await bus.subscribe(topic, "shipping", handler, max_in_flight=8, ack_deadline=2)
        published: list[bytes] = []
        enough = asyncio.Event()

        async def publish() -> None:
            while not enough.is_set():
                data = str(len(published)).encode()
                await bus.publish(topic, data)
                published.append(data)

        publishing = asyncio.create_task(publish())
        await handler.have(50)
        await asyncio.to_thread(server_site.stop_server)
        await asyncio.to_thread(server_site.start_server)
        before = len(published)
        await handler.until(lambda: len(set(handler.data)) > before + 50)
        enough.set()
        await publishing
        await handler.until(lambda: set(published) <= set(handler.data))


@in_loop
async def test_what_is_sent_while_the_server_is_away_arrives(server_site: Site, topic: str) -> None:
    async with open_bus(registry=CollectorRegistry(), **server_site.settings()) as bus:
        handler = Recorder()
        await bus.subscribe(topic, "shipping", handler, ack_deadline=2)
        await bus.publish(topic, b"before")
        await handler.have(1)
        await asyncio.to_thread(server_site.stop_server)
        futures = [await bus.send(topic, f"while {number}") for number in range(20)]
        await asyncio.to_thread(server_site.start_server)
        await bus.flush()
        assert all(future.done() for future in futures)
        await handler.until(lambda: len(set(handler.data)) == 21)


@in_loop
async def test_the_bus_says_why_no_messages_come_as_long_as_they_do_not(server_site: Site, topic: str) -> None:
    async with open_bus(registry=CollectorRegistry(), **server_site.settings()) as bus:
        handler = Recorder()
        await bus.subscribe(topic, "shipping", handler, ack_deadline=2)
        await bus.publish(topic, b"before")
        await handler.have(1)
        assert bus.trouble == ""
        await asyncio.to_thread(server_site.stop_server)
        async with asyncio.timeout(60):
            while not bus.trouble:
                await asyncio.sleep(0.05)
        assert " " in bus.trouble, "in words"
        await asyncio.to_thread(server_site.start_server)
        await bus.publish(topic, b"after")
        await handler.until(lambda: b"after" in handler.data)
        async with asyncio.timeout(60):
            while bus.trouble:
                await asyncio.sleep(0.05)


@in_loop
async def test_what_was_handled_while_the_server_was_away_is_settled(server_site: Site, topic: str) -> None:
    """The ack may be lost with the connection; then the message comes again. Either way the group ends up with
    nothing to do."""
    gate = asyncio.Event()

    async def act(message: Message) -> None:
        await gate.wait()

    async with open_bus(registry=CollectorRegistry(), **server_site.settings()) as bus:
        handler = Recorder(act)
        await bus.subscribe(topic, "shipping", handler, ack_deadline=2)
        await bus.publish(topic, b"x")
        await handler.have(1)
        await asyncio.to_thread(server_site.stop_server)
        gate.set()
        await asyncio.to_thread(server_site.start_server)
        await bus.publish(topic, b"next")
        await handler.until(lambda: b"next" in handler.data)


@in_loop
async def test_a_dead_letter_is_published_when_the_server_is_back(server_site: Site, topic: str) -> None:
    stopped = asyncio.Event()

    async def act(message: Message) -> None:
        await stopped.wait()
        raise RuntimeError("while the server is away")

    async with open_bus(registry=CollectorRegistry(), **server_site.settings()) as bus:
        dead, handler = Recorder(), Recorder(act)
        await bus.subscribe(f"{topic}.DLQ", "undertaker", dead, ack_deadline=2)
        await bus.subscribe(topic, "shipping", handler, max_deliver=1, ack_deadline=2, backoff=[0.05])
        await bus.publish(topic, b"bad")
        await handler.have(1)
        await asyncio.to_thread(server_site.stop_server)
        stopped.set()
        await asyncio.to_thread(server_site.start_server)
        (letter, *_) = await dead.have(1)
    assert letter.data == b"bad"


@in_loop
async def test_close_ends_in_time_while_the_server_is_away(
    server_site: Site, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slipstream.bus.subscription.LAST_WORDS_S", 0.2)
    if server_site.driver == "pubsub":
        monkeypatch.setattr("slipstream.bus.drivers.pubsub.source.LAST_WORDS_S", 0.2)
    settings = {**server_site.settings(), "drain_timeout_ms": 200, "publish_timeout_ms": 5_000}
    async with open_bus(registry=CollectorRegistry(), **settings) as bus:
        handler = Recorder(failing(99))
        await bus.subscribe(topic, "shipping", handler, backoff=Backoff(first=60))
        await bus.publish(topic, b"x")
        await handler.have(1)
        await asyncio.to_thread(server_site.stop_server)
        async with asyncio.timeout(20):
            await bus.close()


@in_loop
async def test_a_follower_goes_on_after_a_restart_of_the_server(server_site: Site, topic: str) -> None:
    skip_without_log(server_site)
    async with open_bus(registry=CollectorRegistry(), **server_site.settings()) as bus:
        await publish(bus, topic, 0, 1_500)
        batches = bus.follow(topic)
        assert numbers(await take(batches, 1_500)) == list(range(1_500))
        waiting = asyncio.ensure_future(anext(batches))
        await asyncio.wait({waiting}, timeout=0.1)
        await asyncio.to_thread(server_site.stop_server)
        await asyncio.wait({waiting}, timeout=0.1)
        await asyncio.to_thread(server_site.start_server)
        await publish(bus, topic, 1_500, 3_500)
        seen = await waiting
        seen += await take(batches, 2_000 - len(seen))
        assert numbers(seen) == list(range(1_500, 3_500)), "all of it, once, and in order"
        await batches.aclose()


EMBEDDED = """
import asyncio, sys
from slipstream.bus import open_bus

async def main(topic):
    async with open_bus() as bus:
        number = 0
        while True:
            await bus.publish(topic, str(number))
            sys.stdout.write(f"{number}\\n")
            sys.stdout.flush()
            number += 1

asyncio.run(main(sys.argv[1]))
"""


@in_loop
async def test_the_embedded_broker_keeps_what_it_confirmed_when_its_process_is_killed(topic: str) -> None:
    site = make_site("embedded")
    try:
        process = Forked(
            [sys.executable, "-c", EMBEDDED, topic],
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, **site.environment()},
        )
        assert process.stdout is not None
        try:
            confirmed = [(await asyncio.to_thread(process.stdout.readline)).strip() for _ in range(50)]
        finally:
            process.kill()
        confirmed += process.communicate()[0].split()[:-1]  # the last line may be half of one
        async with open_bus(registry=CollectorRegistry(), **site.settings()) as bus:
            handler = Recorder()
            await bus.subscribe(topic, "shipping", handler)
            await handler.have(len(confirmed))
            assert handler.data[: len(confirmed)] == [number.encode() for number in confirmed]
    finally:
        site.close()


SERVICE = """
import asyncio, sys
from slipstream.bus import open_bus

told = asyncio.Event()

async def handle(message):
    print("begun", flush=True)
    await told.wait()
    await asyncio.sleep(0.05)  # until after the bus has begun to close
    print("done", flush=True)

async def main():
    async with open_bus() as bus:
        await bus.subscribe(sys.argv[1], "shipping", handle)
        stopped = asyncio.create_task(bus.until_stopped())
        await asyncio.sleep(0)  # now a signal is waited for
        await bus.publish(sys.argv[1], "x")
        await stopped
        told.set()
    print("closed", flush=True)

asyncio.run(main())
"""


@in_loop
async def test_a_service_that_is_told_to_stop_finishes_what_it_has(site: Site, topic: str) -> None:
    process = Forked(
        [sys.executable, "-c", SERVICE, topic],
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, **site.environment()},
    )
    assert process.stdout is not None
    try:
        assert await asyncio.to_thread(process.stdout.readline) == "begun\n"
        process.terminate()
        said, _ = await asyncio.to_thread(process.communicate, timeout=30)
    finally:
        process.kill()
    assert (said.split(), process.returncode) == (["done", "closed"], 0)
