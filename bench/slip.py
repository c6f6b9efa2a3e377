"""Routing next to the bus it stands on: the same messages, over the same hops, by handlers that only pass them on.

Runs in a process of its own and prints one JSON line: seconds for all messages, by who carried them.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec
import uvloop

from slipstream.bus import Bus, Message, open_bus
from slipstream.slip import Envelope, Event, Router, RouteTable, Work, Worker, encode, load_settings, open_store
from slipstream.slip.topics import EGRESS, INGRESS, ROUTER, default_topic

STEPS = ("intent", "retrieval", "formatter")
HOPS = 1 + 2 * len(STEPS) + 1
"""To the router, for each step to the worker and back, and to whoever delivers the reply."""


TURNS = 4


class Plan(msgspec.Struct, kw_only=True):
    driver: str
    address: str
    folder: str
    """For the store of slips, on the same disk."""
    messages: int = 750
    """In each turn."""
    track: bool = False


Seconds = dict[str, float]


async def measure(plan: Plan) -> Seconds:
    """In turns, so that both have their share of what else the machine does. Each is first as often as second: whoever
    is first warms up the engine."""
    sides = [("bus", bare), ("slips", slips)]
    seconds: Seconds = dict.fromkeys(("bus", "slips"), 0.0)
    for turn in range(TURNS):
        for name, run in sides if turn % 2 else reversed(sides):
            gc.collect()
            async with open_bus(**_settings(plan, f"{name}{turn}")) as bus:
                seconds[name] += await run(plan, bus)
    return seconds


def _settings(plan: Plan, name: str) -> dict[str, Any]:
    engine = {
        "embedded": {"data": f"{plan.address}-{name}"},
        "http": {"url": plan.address},
        "nats": {"nats_url": plan.address},
        "pubsub": {"pubsub_emulator_host": plan.address},
    }[plan.driver]
    prefix = f"bench{os.getpid()}-{name}."
    return {"driver": plan.driver, "prefix": prefix, "max_buffered_messages": 4_000, **engine}


def _event(number: int) -> Event:
    return Event(Envelope("1", "bench", f"c-{number}"), "chat.message.v1", {"text": "x" * 200, "reply": "y"})


async def record(folder: str) -> list[Message]:
    """One message on all its hops, as routing puts it on the bus. What is told of it on `slip.events` is left out: that
    is part of what routing costs."""
    hops: list[Message] = []
    complete = asyncio.Event()

    async def keep(message: Message) -> None:
        hops.append(message)
        if len(hops) == HOPS:
            complete.set()

    with tempfile.TemporaryDirectory(dir=folder) as data:
        async with open_bus(driver="embedded", data=data) as bus:
            for topic in (INGRESS, ROUTER, EGRESS, *(default_topic(step_id) for step_id in STEPS)):
                await bus.subscribe(topic, "recorder", keep, max_in_flight=1)
            await slips(Plan(driver="embedded", address="", folder=folder, messages=1), bus)
            await complete.wait()
    return sorted(hops, key=lambda message: len(message.data))  # every hop leaves something on the slip


async def bare(plan: Plan, bus: Bus) -> float:
    """Each hop is a topic. A message is passed on when the next hop has it safely, with an id as long as routing's, so
    that it is not there twice if somebody dies in between."""
    recorded = await record(plan.folder)
    left, done = plan.messages, asyncio.Event()

    async def pass_on(hop: int, message: Message) -> None:
        attributes = {"correlationId": message.correlation_id, "stepId": message.attributes["stepId"]}
        message_id = f"{message.correlation_id:0>64}:hop{hop}"
        await bus.publish(f"hop{hop}", recorded[hop].data, attributes, message.key, message_id=message_id)

    async def finish(message: Message) -> None:
        nonlocal left
        left -= 1
        if not left:
            done.set()

    for hop in range(HOPS):
        handler = finish if hop == HOPS - 1 else functools.partial(pass_on, hop + 1)
        await bus.subscribe(f"hop{hop}", "bench", handler, max_in_flight=64)
    began = time.perf_counter()
    for number in range(plan.messages):
        event = _event(number)
        attributes = {"correlationId": event.envelope.correlation_id, "stepId": "intent"}
        await bus.send("hop0", encode(event), attributes, event.envelope.correlation_id)
    await done.wait()
    return time.perf_counter() - began


async def slips(plan: Plan, bus: Bus) -> float:
    worker, done = Worker(), asyncio.Event()
    for step_id in STEPS:

        @worker.step(step_id)
        async def do(work: Work) -> None:
            pass

    left = plan.messages

    async def hear(message: Message) -> None:
        nonlocal left
        left -= 1
        if not left:
            done.set()

    router = Router(RouteTable.of({"routes": {"chat.message.v1": {"steps": list(STEPS)}}}), track=plan.track)
    settings = load_settings({}, {})
    with tempfile.TemporaryDirectory(dir=plan.folder) as folder:
        async with (
            open_store(str(Path(folder) / "slips.db")) as store,
            router.running(bus, store, settings),
            worker.running(bus, store, settings),
        ):
            await bus.subscribe(EGRESS, "bench", hear)
            began = time.perf_counter()
            for number in range(plan.messages):
                event = _event(number)
                attributes = {"correlationId": event.envelope.correlation_id}
                await bus.send(INGRESS, encode(event), attributes, event.envelope.correlation_id)
            await done.wait()
            return time.perf_counter() - began


if __name__ == "__main__":
    found = uvloop.run(measure(msgspec.json.decode(sys.argv[1], type=Plan)))
    sys.stdout.write(msgspec.json.encode(found).decode() + "\n")
