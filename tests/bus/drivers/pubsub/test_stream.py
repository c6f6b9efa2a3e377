"""The stream ends now and then, and not always nicely."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest

from tests.bus.drivers.pubsub.conftest import opener
from tests.bus.drivers.pubsub.engine import Engine
from tests.bus.recorder import Recorder
from tests.bus.sites.pubsub import PubSubSite
from tests.client.loop import in_loop

STREAM = "slipstream.bus.drivers.pubsub.stream"


def said(caplog: pytest.LogCaptureFixture, text: str) -> int:
    return sum(text in record.getMessage() for record in caplog.records if record.name == STREAM)


@in_loop
async def test_trouble_is_said_once_and_so_is_its_end(
    own_pubsub: PubSubSite, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, STREAM)
    async with opener(own_pubsub)() as bus:
        handler = Recorder()
        await bus.subscribe(topic, "shipping", handler)
        await bus.publish(topic, b"before")
        await handler.have(1)
        await asyncio.to_thread(own_pubsub.stop_server)
        while not said(caplog, "gives no messages"):
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.5)  # several tries
        assert said(caplog, "gives no messages") == 1
        await asyncio.to_thread(own_pubsub.start_server)
        await bus.publish(topic, b"after")
        await handler.until(lambda: b"after" in handler.data)
    assert said(caplog, "gives messages again") == 1


@in_loop
async def test_a_subscription_that_is_deleted_and_not_ours_to_make_is_waited_for(
    own_pubsub: PubSubSite, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with opener(own_pubsub)() as bus:
        await (await bus.subscribe(topic, "shipping", Recorder())).close()
    async with opener(own_pubsub)(ensure=False) as bus:
        engine, handler = Engine(bus), Recorder()
        await bus.subscribe(topic, "shipping", handler)
        await engine.delete_subscription(f"{topic}.shipping")
        while not said(caplog, "gives no messages"):
            await asyncio.sleep(0.01)
        assert [record.levelname for record in caplog.records if record.name == STREAM] == ["ERROR"]
        await engine.create_subscription(topic, f"{topic}.shipping")
        await bus.publish(topic, b"after")
        await handler.have(1)


@in_loop
async def test_a_stop_does_not_wait_for_the_next_try(
    own_pubsub: PubSubSite, topic: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(f"{STREAM}.PAUSE_S_FIRST", 1000.0)
    async with opener(own_pubsub)() as bus:
        subscription = await bus.subscribe(topic, "shipping", Recorder())
        await asyncio.to_thread(own_pubsub.stop_server)
        while not said(caplog, "gives no messages"):
            await asyncio.sleep(0.01)
        began = time.monotonic()
        await subscription.close()
        assert time.monotonic() - began < 20
