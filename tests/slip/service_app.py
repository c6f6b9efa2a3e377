"""A router, a worker, or both, as a process of its own: to be killed by tests."""

from __future__ import annotations

import asyncio
import os
import random
import sys

from slipstream.slip import Reject, Router, RouteTable, StepFailed, Work, Worker, serving
from slipstream.slip.service import Service

ROUTES = RouteTable.of(
    {
        "routes": {
            "poison.v1": {"steps": ["drink"]},
            "order.v1": {
                "steps": [
                    "reserve",
                    {"id": "check", "parallel": {"fraud": ["fraud"], "stock": ["stock"]}, "join": "all"},
                    "charge",
                    "ship",
                ]
            },
        }
    }
)


def make_worker() -> Worker:
    worker = Worker()
    for step_id in ("reserve", "fraud", "stock", "charge", "ship"):

        @worker.step(step_id)
        async def do(work: Work) -> None:
            dice = random.Random(f"{work.correlation_id} {work.step.id} {work.attempt}")
            await asyncio.sleep(dice.random() * 0.02)
            match dice.randrange(20):
                case 0:
                    raise Reject("never")
                case 1 | 2 | 3:
                    raise StepFailed("busy")
            work.undo_with(work.step.id)

        @worker.undo(step_id)
        async def undo(work: Work) -> None:
            pass

    @worker.step("drink")
    async def drink(work: Work) -> None:
        os._exit(1)

    return worker


async def main(role: str) -> None:
    services: list[Service] = []
    if role in {"router", "all"}:
        services.append(Router(ROUTES))
    if role in {"worker", "all"}:
        services.append(make_worker())
    async with serving(*services) as bus:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await bus.until_stopped()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
