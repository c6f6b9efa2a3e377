"""What the doctor says about Pub/Sub."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from importlib.metadata import version

from slipstream.bus.drivers.driver import Finding
from slipstream.bus.drivers.pubsub.connection import PubSubNative, connect, probe
from slipstream.bus.drivers.pubsub.subscriptions import Subscriptions
from slipstream.bus.errors import BusError
from slipstream.bus.settings import BusSettings


async def examine(settings: BusSettings, prefix: str) -> AsyncIterator[Finding]:
    yield Finding("ok", "libraries", f"google-cloud-pubsub {version('google-cloud-pubsub')}")
    try:
        native = await asyncio.to_thread(connect, settings)
    except BusError as error:
        yield Finding("problem", "credentials", str(error))
        return
    try:
        async for finding in _connected(settings, native, prefix):
            yield finding
    finally:
        native.close()


async def _connected(settings: BusSettings, native: PubSubNative, prefix: str) -> AsyncIterator[Finding]:
    if settings.pubsub_emulator_host:
        yield Finding("ok", "credentials", f"none are needed: PUBSUB_EMULATOR_HOST={settings.pubsub_emulator_host}")
    else:
        yield Finding("ok", "credentials", "Application Default Credentials")
    yield Finding("ok", "project", native.project)
    try:
        await asyncio.to_thread(probe, native, settings.connect_timeout_ms / 1000)
    except BusError as error:
        what_to_do = (
            "start it, or correct PUBSUB_EMULATOR_HOST" if settings.pubsub_emulator_host else "check the network"
        )
        yield Finding("problem", "connection", f"{error}: {what_to_do}")
        return
    yield Finding("ok", "connection", f"{native.publisher.target} answers")
    subscriptions = Subscriptions(native, settings)
    try:
        topics = await asyncio.to_thread(subscriptions.topics, prefix)
        yield Finding("ok", "topics", f"{len(topics)}, with names that start with {prefix!r}")
        for topic in topics:
            yield _about(topic, await asyncio.to_thread(subscriptions.of_topic, topic))
        for name in await asyncio.to_thread(subscriptions.orphans, prefix):
            yield Finding(
                "warning",
                f"subscription {name}",
                "its topic was deleted, so it gets nothing any more, even if there is such a topic again: delete it",
            )
    except BusError as error:
        yield Finding("warning", "topics", f"{error}; what exists is not known")


def _about(topic: str, subscriptions: list[str]) -> Finding:
    if subscriptions:
        return Finding("ok", f"topic {topic}", f"subscriptions: {', '.join(sorted(subscriptions))}")
    return Finding(
        "warning", f"topic {topic}", "it has no subscription: what is published there is lost until somebody subscribes"
    )
