"""The bus next to the bare client library of each engine, on the same server, with the same data and attributes.

Runs in a process of its own and prints one JSON line: messages a second, by what was done.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import uvloop

from slipstream.bus import Message, open_bus

DATA = os.urandom(200)
ATTRIBUTES = {"correlationId": "c" * 32, "traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}
"""What every message of the bus has. Who uses the bare library and wants to find a message again sends them as well."""

IN_FLIGHT = 100
"""Handlers of the bus, and messages in a fetch of the bare libraries."""


class Plan(msgspec.Struct, kw_only=True):
    driver: str
    address: str
    messages: int = 20_000
    one_by_one: int = 4_000


Rates = dict[str, float]


async def measure(plan: Plan) -> Rates:
    """Bare first and ours second, or the other way round, as it comes: whoever is first warms up the server."""
    bare: dict[str, Callable[[Plan], Awaitable[Rates]]] = {"nats": bare_nats, "http": bare_http, "pubsub": bare_pubsub}
    sides = [("ours", ours), ("bare", bare.get(plan.driver))]
    if time.time_ns() % 2:
        sides.reverse()
    rates: Rates = {}
    for side, run in sides:
        if run is not None:
            gc.collect()
            rates |= {f"{side} {what}": rate for what, rate in (await run(plan)).items()}
    return rates


async def ours(plan: Plan) -> Rates:
    settings: dict[str, Any] = {"driver": plan.driver, "max_buffered_messages": 4_000}
    settings |= {
        "embedded": {"data": plan.address},
        "http": {"url": plan.address},
        "nats": {"nats_url": plan.address},
        "pubsub": {"pubsub_emulator_host": plan.address},
    }[plan.driver]
    topic = _name("ours")
    rates: Rates = {}
    async with open_bus(**settings) as bus:
        if plan.driver == "pubsub":  # which keeps nothing for a group that is not there yet
            await (await bus.subscribe(topic, "bench", _ignore)).close()
        await bus.publish(topic, DATA, ATTRIBUTES)
        with _timed(rates, "publish, one by one", plan.one_by_one):
            for _ in range(plan.one_by_one):
                await bus.publish(topic, DATA, ATTRIBUTES)
        with _timed(rates, "publish", plan.messages):
            for _ in range(plan.messages):
                await bus.send(topic, DATA, ATTRIBUTES)
            await bus.flush()
        stored = 1 + plan.one_by_one + plan.messages
        left, done = stored, asyncio.Event()

        async def handle(message: Message) -> None:
            nonlocal left
            left -= 1
            if not left:
                done.set()

        with _timed(rates, "consume", stored):
            await bus.subscribe(topic, "bench", handle, max_in_flight=IN_FLIGHT)
            await done.wait()
    return rates


async def _ignore(message: Message) -> None:
    """Nothing has been published yet."""


async def bare_nats(plan: Plan) -> Rates:
    """The fastest ways nats-py has: `publish_async` with its bound of pending ones, and pulls of 100."""
    import nats  # noqa: PLC0415

    client = await nats.connect(plan.address)
    js = client.jetstream()
    topic = _name("bare")
    await js.add_stream(name=topic, subjects=[topic])
    rates: Rates = {}
    number = 0

    def headers() -> dict[str, str]:
        """With an id each, without which a publish could not be repeated safely."""
        nonlocal number
        number += 1
        return {**ATTRIBUTES, "Nats-Msg-Id": f"{topic}-{number}"}

    with _timed(rates, "publish, one by one", plan.one_by_one):
        for _ in range(plan.one_by_one):
            await js.publish(topic, DATA, headers=headers())
    with _timed(rates, "publish", plan.messages):
        futures = [await js.publish_async(topic, DATA, headers=headers()) for _ in range(plan.messages)]
        await asyncio.gather(*futures)
    subscription = await js.pull_subscribe(topic, "bench")
    left = plan.one_by_one + plan.messages
    with _timed(rates, "consume", left):
        while left:
            for msg in await subscription.fetch(IN_FLIGHT):
                await msg.ack()
                left -= 1
    await client.close()
    return rates


async def bare_http(plan: Plan) -> Rates:
    """Our own client: its producer, and fetches of 100."""
    from slipstream.client import AsyncClient  # noqa: PLC0415

    topic = _name("bare")
    rates: Rates = {}
    async with AsyncClient(plan.address) as client:
        await client.create_topic(topic)
        with _timed(rates, "publish, one by one", plan.one_by_one):
            for _ in range(plan.one_by_one):
                await client.produce(topic, DATA, attributes=ATTRIBUTES)
        with _timed(rates, "publish", plan.messages):
            async with client.producer(topic) as producer:
                for _ in range(plan.messages):
                    await producer.send(DATA, attributes=ATTRIBUTES)
        left = plan.one_by_one + plan.messages
        with _timed(rates, "consume", left):
            while left:
                messages = await client.fetch(topic, "bench", max_messages=IN_FLIGHT, wait_ms=1_000)
                await client.ack(*messages)
                left -= len(messages)
    return rates


async def bare_pubsub(plan: Plan) -> Rates:
    return await asyncio.to_thread(_bare_pubsub, plan)


def _bare_pubsub(plan: Plan) -> Rates:
    """google-cloud-pubsub with its own batches, and a streaming pull."""
    from google.cloud import pubsub_v1  # noqa: PLC0415

    os.environ["PUBSUB_EMULATOR_HOST"] = plan.address
    publisher, subscriber = pubsub_v1.PublisherClient(), pubsub_v1.SubscriberClient()
    name = _name("bare")
    topic, subscription = publisher.topic_path("bench", name), subscriber.subscription_path("bench", name)
    publisher.create_topic(name=topic)
    subscriber.create_subscription(name=subscription, topic=topic, ack_deadline_seconds=30)
    rates: Rates = {}
    with _timed(rates, "publish, one by one", plan.one_by_one):
        for _ in range(plan.one_by_one):
            publisher.publish(topic, DATA, **ATTRIBUTES).result()
    with _timed(rates, "publish", plan.messages):
        concurrent.futures.wait([publisher.publish(topic, DATA, **ATTRIBUTES) for _ in range(plan.messages)])
    stored = left = plan.one_by_one + plan.messages
    done, lock = threading.Event(), threading.Lock()

    def handle(message: Any) -> None:
        nonlocal left
        message.ack()
        with lock:
            left -= 1
            if not left:
                done.set()

    with _timed(rates, "consume", stored):
        flow = pubsub_v1.types.FlowControl(max_messages=IN_FLIGHT)
        streaming = subscriber.subscribe(subscription, callback=handle, flow_control=flow)
        done.wait()
    streaming.cancel()
    streaming.result()
    subscriber.close()
    publisher.stop()
    publisher.transport.close()
    return rates


class _timed:  # noqa: N801 - reads as what it does
    def __init__(self, rates: Rates, what: str, messages: int) -> None:
        self._rates, self._what, self._messages = rates, what, messages

    def __enter__(self) -> None:
        self._began = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self._rates[self._what] = self._messages / (time.perf_counter() - self._began)


def _name(side: str) -> str:
    return f"bench-{side}-{time.time_ns()}"


if __name__ == "__main__":
    rates = uvloop.run(measure(msgspec.json.decode(sys.argv[1], type=Plan)))
    sys.stdout.write(msgspec.json.encode(rates).decode() + "\n")
