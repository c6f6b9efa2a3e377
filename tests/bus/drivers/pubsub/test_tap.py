"""Listening in leaves nothing behind."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from slipstream.bus import Bus, Stored
from tests.bus.conftest import OpenBus
from tests.bus.drivers.pubsub.engine import Engine
from tests.client.loop import in_loop


async def taps(bus: Bus) -> set[str]:
    return {name for name in await Engine(bus).subscriptions() if name.startswith("tap-")}


async def listening(bus: Bus, topic: str) -> tuple[asyncio.Task[None], asyncio.Queue[Stored]]:
    """A tap in a task of its own, which has its subscriptions when this returns."""
    seen: asyncio.Queue[Stored] = asyncio.Queue()
    listening = asyncio.Event()

    async def listen() -> None:
        async for stored in bus.tap(f"{topic}*", listening=listening):
            seen.put_nowait(stored)

    task = asyncio.create_task(listen())
    await listening.wait()
    return task, seen


async def ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


@in_loop
async def test_its_subscriptions_are_gone_when_it_is_cancelled(new_bus: OpenBus, topic: str) -> None:
    async with new_bus() as bus:
        await bus.ensure_topic(f"{topic}.a")
        await bus.ensure_topic(f"{topic}.b")
        before = await taps(bus)
        task, seen = await listening(bus, topic)
        assert len(await taps(bus) - before) == 2
        await bus.publish(f"{topic}.a", b"x", {"orderId": "17"}, "user:1")
        stored = await seen.get()
        await ended(task)
        while await taps(bus) - before:  # a generator that is left alone is closed by the loop, and not awaited
            await asyncio.sleep(0.01)
    assert (stored.topic, stored.data, stored.key, stored.attributes["orderId"]) == (f"{topic}.a", b"x", "user:1", "17")


@in_loop
async def test_its_subscriptions_are_gone_when_the_bus_is_closed_under_it(new_bus: OpenBus, topic: str) -> None:
    async with new_bus() as watching:
        before = await taps(watching)
        async with new_bus() as bus:
            await bus.ensure_topic(topic)
            task, _ = await listening(bus, topic)
        assert await taps(watching) == before
        await ended(task)


@in_loop
async def test_a_topic_that_the_bus_makes_is_seen_from_its_first_message(new_bus: OpenBus, topic: str) -> None:
    async with new_bus() as bus:
        await bus.ensure_topic(topic)
        task, seen = await listening(bus, topic)
        await bus.publish(f"{topic}.new", b"first")
        assert (await seen.get()).data == b"first"
        await ended(task)


@in_loop
async def test_a_topic_that_others_make_is_found(new_bus: OpenBus, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slipstream.bus.drivers.pubsub.tap.LISTING_PAUSE_S", 0.1)
    async with new_bus() as bus, new_bus() as other:
        await bus.ensure_topic(topic)
        task, seen = await listening(bus, topic)
        while seen.empty():
            await other.publish(f"{topic}.new", b"x")
            await asyncio.sleep(0.05)
        assert (await seen.get()).topic == f"{topic}.new"
        await ended(task)
