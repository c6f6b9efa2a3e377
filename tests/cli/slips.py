"""Histories of slips in a file, made by a router and workers that really run, on the memory bus."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result
from prometheus_client import CollectorRegistry

from slipstream.bus import open_bus
from slipstream.cli import main
from slipstream.slip import Reject, RouteTable, Skip, SlipSettings, StepFailed, Work, Worker, open_store
from tests.slip.lab import Lab, fast, lab

ROUTES = RouteTable.of(
    {
        "routes": {
            "order.v1": {
                "steps": [
                    "validate",
                    {"id": "gift-wrap", "unless": {"!": {"var": "payload.gift"}}},
                    "charge",
                    {
                        "id": "prepare",
                        "parallel": {"warehouse": ["reserve", "pick"], "papers": ["invoice"]},
                        "join": "all",
                    },
                    {"id": "greeting", "optional": True, "max_attempts": 1},
                    "ship",
                    "notify",
                ]
            },
            "loan.v1": {
                "steps": ["validate", {"id": "manager", "wait": "approval", "deadline": "1h"}, "charge", "notify"]
            },
            "webhook.v1": {"steps": [{"id": "callback", "wait": "signal"}, "notify"]},
            "lonely.v1": {"steps": ["validate", "nobody", "notify"]},
            "race.v1": {
                "steps": [
                    {"id": "first", "parallel": {"slow": ["nobody"], "bad": ["ship"]}, "join": "all"},
                    "notify",
                ]
            },
            "split.v1": {
                "steps": [
                    {
                        "id": "both",
                        "parallel": {"left": [{"id": "clerk", "wait": "approval"}], "right": ["validate"]},
                        "join": "all",
                    },
                    "notify",
                ]
            },
        }
    }
)


def shop() -> Worker:
    """Does what the payload says should go wrong."""
    worker = Worker("shop")

    async def slow(work: Work, share: float = 1.0) -> None:
        await asyncio.sleep(work.payload.get("slow_s", 0) * share)

    @worker.step("validate")
    async def validate(work: Work) -> None:
        await slow(work, 0.2)

    @worker.step("gift-wrap")
    async def gift_wrap(work: Work) -> None:
        raise Skip("no paper left")

    failures: Counter[str] = Counter()

    @worker.step("charge")
    async def charge(work: Work) -> None:
        work.undo_with({"receipt": 1})
        await slow(work)
        failures[work.correlation_id] += 1
        if failures[work.correlation_id] <= work.payload.get("failures", 0):
            raise StepFailed("bank_away", "the bank did not answer within 200 ms, and nobody knows when it will")

    @worker.undo("charge")
    async def refund(work: Work) -> None:
        await slow(work, 0.5)

    @worker.step("reserve")
    async def reserve(work: Work) -> None:
        work.undo_with({"shelf": 7})
        await slow(work)

    @worker.undo("reserve")
    async def release(work: Work) -> None:
        await slow(work, 0.3)

    @worker.step("pick")
    async def pick(work: Work) -> None:
        await slow(work, 0.7)

    @worker.step("invoice")
    async def invoice(work: Work) -> None:
        await slow(work, 0.4)

    @worker.step("greeting")
    async def greeting(work: Work) -> None:
        raise Reject("nobody writes cards any more")

    @worker.step("ship")
    async def ship(work: Work) -> None:
        await slow(work, 0.5)
        if work.payload.get("lost"):
            raise Reject("no such address: [bold]Nowhere[/] 7")

    @worker.step("notify")
    async def notify(work: Work) -> None:
        pass

    return worker


@contextlib.asynccontextmanager
async def open_shop(path: Path | str, settings: SlipSettings | None = None) -> AsyncIterator[Lab]:
    """Router and worker, with their store in this file, or at this address."""
    settings = settings or fast(store=str(path), retry_base_ms=60)
    async with (
        open_bus(driver="memory", registry=CollectorRegistry()) as bus,
        open_store(str(path)) as store,
        lab(bus, ROUTES, shop(), settings=settings, store=store) as made,
    ):
        yield made


async def kept(made: Lab, correlation_id: str, kind: str) -> None:
    """Until the tracker has written it down."""
    async with asyncio.timeout(30):
        while not any(f'"kind":"{kind}"'.encode() in data for data in await made.store.history(correlation_id)):
            await asyncio.sleep(0.01)


class Slips:
    """`slipstream slip …` on one store. Each fails where the exit code is not the one that was expected."""

    def __init__(self, store: Path) -> None:
        self.store = store

    def run(self, *arguments: str, expect: int = 0, stdin: str | None = None, **variables: str) -> Result:
        environment = {"SLIP_STORE": str(self.store), "NO_COLOR": "1", **variables}
        # In a thread, since a test may have an event loop; a command has its own.
        with ThreadPoolExecutor(1) as thread:
            result = thread.submit(
                CliRunner().invoke, main, ["slip", *arguments], input=stdin, env=environment
            ).result()
        assert result.exit_code == expect, f"{result.exit_code}\n{result.output}\n{result.exception!r}"
        return result

    def said(self, *arguments: str, **how: Any) -> str:
        return self.run(*arguments, **how).stdout

    def refused(self, *arguments: str, expect: int, **how: Any) -> str:
        return self.run(*arguments, expect=expect, **how).stderr

    def json(self, *arguments: str, **how: Any) -> Any:
        return json.loads(self.run(*arguments, "--json", **how).stdout)

    def lines(self, *arguments: str, **how: Any) -> list[Any]:
        return [json.loads(line) for line in self.run(*arguments, "--json", **how).stdout.splitlines()]
