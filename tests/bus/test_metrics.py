"""What a bus counts, on every engine."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from slipstream.bus import Message, Reject
from tests.bus.conftest import OpenBus
from tests.bus.recorder import Recorder, failing
from tests.bus.sites.site import Site
from tests.client.loop import in_loop


@in_loop
async def test_everything_is_counted_with_the_driver(
    site: Site, new_bus: OpenBus, registry: CollectorRegistry, topic: str
) -> None:
    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, {"driver": site.driver, "topic": topic, **labels})

    gate = asyncio.Event()

    async def act(message: Message) -> None:
        if message.data == b"bad":
            raise Reject("never")
        if message.data == b"flaky":
            await failing(1)(message)
        if message.data == b"slow":
            await gate.wait()

    async with new_bus(lag_interval_ms=20) as bus:
        handler = Recorder(act)
        await bus.subscribe(topic, "shipping", handler, backoff=[0.02])
        for data in (b"good", b"bad", b"flaky", b"slow"):
            await bus.publish(topic, data)
        await handler.until(lambda: len(handler.messages) == 5)
        while value("messages_total", event="acked") != 2:
            await asyncio.sleep(0.01)
        while value("dead_letters_total", group="shipping", reason="rejected") != 1:
            await asyncio.sleep(0.01)
        assert value("messages_total", event="published") == 4
        assert value("messages_total", event="received") == 5
        assert value("messages_total", event="nacked") == 1
        assert value("messages_total", event="dead_lettered") == 1
        assert value("redeliveries_total", group="shipping") == 1
        assert value("messages_inflight", group="shipping") == 1
        assert value("publish_latency_ms_count") == 4
        while value("consumer_lag", group="shipping") != 1:
            await asyncio.sleep(0.01)  # as the engine says it, every 20 ms
        gate.set()
    assert value("messages_inflight", group="shipping") == 0
    assert value("messages_total", event="acked") == 3
    assert b"publish_latency_ms_bucket" in generate_latest(registry)


@in_loop
async def test_the_lag_is_told_at_once(site: Site, new_bus: OpenBus, registry: CollectorRegistry, topic: str) -> None:
    """Not after an interval, in which it would look as if all were done."""
    if not site.keeps_before_subscribed:
        pytest.skip(f"{site.driver} tells no lag")
    async with new_bus(lag_interval_ms=3_600_000) as bus:
        for _ in range(3):
            await bus.publish(topic, b"x")
        gate = asyncio.Event()

        async def act(message: Message) -> None:
            await gate.wait()

        await bus.subscribe(topic, "shipping", Recorder(act), max_in_flight=1)
        labels = {"driver": site.driver, "topic": topic, "group": "shipping"}
        while registry.get_sample_value("consumer_lag", labels) != 3:
            await asyncio.sleep(0.01)
        gate.set()
