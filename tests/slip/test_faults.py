"""Whatever fails, and whenever: every message ends once, complete or as a dead letter."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from slipstream.bus import BusUnavailable
from slipstream.bus.opening import Opening
from slipstream.slip import Reject, Router, RouteTable, StepFailed, Work, Worker, open_store, submit
from slipstream.slip.store import StoreUnavailable
from tests.client.loop import in_loop
from tests.slip.lab import Lab, fast

ROUTES = RouteTable.of(
    {
        "routes": {
            "order.v1": {
                "steps": [
                    "reserve",
                    {"id": "check", "parallel": {"fraud": ["fraud"], "stock": ["stock", "price"]}, "join": "all"},
                    {"id": "gift", "optional": True},
                    "charge",
                    "ship",
                ]
            }
        }
    }
)


class Faulty:
    """Fails now and then, before it has done what it was asked to or after."""

    def __init__(self, real: Any, calls: set[str], error: type[Exception], chance: float, dice: random.Random) -> None:
        self._real = real
        self._calls = calls
        self._error = error
        self._chance = chance
        self._dice = dice

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._real, name)
        if name not in self._calls:
            return real

        async def call(*args: Any, **kwargs: Any) -> Any:
            if self._dice.random() < self._chance:
                raise self._error(f"{name} fails before")
            answer = await real(*args, **kwargs)
            if self._dice.random() < self._chance:
                raise self._error(f"{name} fails after")
            return answer

        return call


def worker(seed: int, done: Counter[str]) -> Worker:
    """An attempt always ends alike: one whose end could not be written down is made again."""
    made = Worker()
    for step_id in ("reserve", "fraud", "stock", "price", "gift", "charge", "ship"):

        @made.step(step_id)
        async def do(work: Work) -> None:
            await asyncio.sleep(0)
            dice = random.Random(f"{seed} {work.correlation_id} {work.step.id} {work.attempt}")
            match dice.randrange(14):
                case 0:
                    raise Reject("never")
                case 1 | 2 | 3:
                    raise StepFailed("busy", retryable=True)
            work.undo_with({"step": work.step.id})
            done[f"{work.correlation_id.partition('/')[0]} {work.step.id}"] = 1

        @made.undo(step_id)
        async def undo(work: Work) -> None:
            done[f"{work.correlation_id.partition('/')[0]} {work.record['step']}"] = 0

    return made


@pytest.mark.parametrize(
    "seed", [0, 1, 7, *(pytest.param(seed, marks=pytest.mark.long) for seed in (*range(2, 7), *range(8, 40)))]
)
@in_loop
async def test_every_message_ends_once_whatever_fails(
    memory_bus: Callable[[], Opening], seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)  # it is all about errors
    dice, done = random.Random(seed), Counter[str]()
    settings = fast(retry_base_ms=1, retry_longest_ms=20, ack_deadline_ms=300, max_deaths=1000)
    slips = [f"c-{number}" for number in range(12)]
    async with memory_bus() as bus, open_store(":memory:") as store:
        lab = Lab(bus, store, settings)
        await lab.listen()
        faulty_bus: Any = Faulty(bus, {"send", "publish"}, BusUnavailable, 0.05, dice)
        names = {"claim", "put", "get", "facts", "remove", "schedule", "unschedule", "due"}
        faulty_store: Any = Faulty(store, names, StoreUnavailable, 0.05, dice)
        async with contextlib.AsyncExitStack() as stack:
            for service in (Router(ROUTES, track=False), Router(ROUTES, track=False)):
                await stack.enter_async_context(service.running(faulty_bus, faulty_store, settings))
            while True:
                try:
                    await stack.enter_async_context(worker(seed, done).running(faulty_bus, faulty_store, settings))
                    break
                except StoreUnavailable:
                    continue
            for slip in slips:
                await submit(bus, "order.v1", {"reply": slip}, source="test", correlation_id=slip)
            for slip in slips:
                await lab.ended(slip)
            # A branch that ends after its message has failed is undone after that: the story ends when that is done.
            while _left(lab, done):
                await asyncio.sleep(0.05)
            await asyncio.sleep(0.2)  # nothing is to come after it, and nothing tells when nothing comes
    ends = Counter(one.correlation_id for one in lab.progress if one.kind in {"completed", "dead-lettered"})
    roots = {slip: count for slip, count in ends.items() if "/" not in slip}
    assert roots == dict.fromkeys(slips, 1)
    delivered = Counter(one["envelope"]["correlationId"] for one in lab.delivered)
    dead = Counter(one["envelope"]["correlationId"] for one in lab.dead)
    assert delivered + dead == Counter(slips)


def _left(lab: Lab, done: Counter[str]) -> list[str]:
    """What was done of messages that have failed, and is not undone."""
    failed = {letter["envelope"]["correlationId"] for letter in lab.dead}
    return [name for name, is_done in done.items() if is_done and name.split()[0] in failed]
