"""Routers and workers that are killed at random, as processes: every message ends once."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from slipstream.bus import Message, open_bus
from slipstream.slip import Progress, open_store, submit
from slipstream.slip.lookup import look_up
from slipstream.slip.presence import workers
from slipstream.slip.topics import DEAD_LETTERS, EGRESS, PROGRESS
from tests.bus.recorder import Recorder
from tests.bus.sites import make_site
from tests.chance import chance
from tests.client.loop import in_loop_for
from tests.forked import Forked

ROOT = Path(__file__).parent.parent.parent
LONG = (pytest.mark.long, pytest.mark.timeout(900))

ENVIRONMENT = {
    "SLIP_ACK_DEADLINE_MS": "1000",
    "SLIP_RETRY_BASE_MS": "20",
    "SLIP_POLL_MS": "100",
    "SLIP_MAX_DEATHS": "100",
}


class Crew:
    """Processes that are killed, and replaced."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._environment = {**os.environ, **ENVIRONMENT, **environment}  # the last counts
        self._processes: list[tuple[str, Forked]] = []
        self._chance = chance()

    async def start(self, role: str) -> None:
        process = Forked(
            [sys.executable, "-m", "tests.slip.service_app", role],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=ROOT,
            env=self._environment,
        )
        self._processes.append((role, process))
        assert process.stdout is not None
        assert (await asyncio.to_thread(process.stdout.readline)).strip() == "ready"

    async def kill_one(self) -> str:
        """Without a word. Returns what it was."""
        role, process = self._processes.pop(self._chance.randrange(len(self._processes)))
        await self._kill(process)
        return role

    async def deaths(self, count: int) -> None:
        """Return when so many have ended by their own hand, and check that the others have not."""
        ends = [asyncio.ensure_future(asyncio.to_thread(process.wait)) for _, process in self._processes]
        for end in itertools.islice(asyncio.as_completed(ends), count):
            await end
        alive = [end for end in ends if not end.done()]
        assert len(alive) == len(ends) - count
        for end in alive:
            end.cancel()

    async def kill_all(self) -> None:
        for _, process in self._processes:
            await self._kill(process)
        self._processes.clear()

    async def _kill(self, process: Forked) -> None:
        process.kill()
        await asyncio.to_thread(process.communicate)


@contextlib.asynccontextmanager
async def crew(environment: dict[str, str]) -> AsyncIterator[Crew]:
    made = Crew(environment)
    try:
        yield made
    finally:
        await made.kill_all()


class Witness:
    """Counts how messages ended, by what the engine has of it: each message once, however often it is delivered."""

    def __init__(self) -> None:
        self._seen: set[tuple[str, str]] = set()
        self.ends: Counter[str] = Counter()
        self.letters: Counter[str] = Counter()
        self._came = asyncio.Condition()

    async def __call__(self, message: Message) -> None:
        if (message.topic, message.id) in self._seen:
            return
        self._seen.add((message.topic, message.id))
        if message.topic == PROGRESS:
            for progress in message.json(list[Progress]):
                if progress.kind in {"completed", "dead-lettered"} and "/" not in progress.correlation_id:
                    self.ends[progress.correlation_id] += 1
        else:
            self.letters[message.json()["envelope"]["correlationId"]] += 1
        async with self._came:
            self._came.notify_all()

    async def until_ended(self, count: int) -> None:
        async with self._came:
            await self._came.wait_for(lambda: len(self.ends) >= count)


@pytest.mark.parametrize(
    ("driver", "kills"),
    [
        ("http", 3),
        ("nats", 3),
        pytest.param("http", 40, marks=LONG),
        pytest.param("nats", 40, marks=LONG),
    ],
)
@in_loop_for(850)
async def test_every_message_ends_once_though_routers_and_workers_are_killed(
    driver: str, kills: int, tmp_path: Path
) -> None:
    site = make_site(driver)
    environment = {**site.environment(), "SLIP_STORE": str(tmp_path / "slips.db")}
    slips: list[str] = []
    witness = Witness()
    try:
        async with open_bus(**site.settings()) as bus, crew(environment) as processes:
            for topic in (PROGRESS, DEAD_LETTERS, EGRESS):
                await bus.subscribe(topic, "witness", witness)
            await asyncio.gather(*(processes.start(role) for role in ("router", "router", "worker", "worker")))
            killing = asyncio.create_task(_kill_now_and_then(processes, kills, witness))
            # Each kill finds all of it at once: begun, under way, done.
            while not killing.done():
                if len(slips) - len(witness.ends) < 10:
                    slips.append(f"c-{len(slips)}")
                    await submit(bus, "order.v1", {"reply": slips[-1]}, source="test", correlation_id=slips[-1])
                await asyncio.sleep(0.1)
            await killing
            await witness.until_ended(len(slips))
            # One more, begun when all had ended: what would come twice comes before its end.
            await submit(bus, "order.v1", {"reply": "last"}, source="test", correlation_id="last")
            await witness.until_ended(len(slips) + 1)
    finally:
        site.close()
    assert witness.ends == Counter([*slips, "last"])
    assert witness.letters == Counter([*slips, "last"])


@pytest.mark.parametrize("driver", ["http", "nats"])
@in_loop_for(850)
async def test_what_kills_its_workers_is_a_dead_letter_in_the_end(driver: str, tmp_path: Path) -> None:
    site = make_site(driver)
    environment = {**site.environment(), "SLIP_STORE": str(tmp_path / "slips.db"), "SLIP_MAX_DEATHS": "2"}
    dead = Recorder()
    try:
        async with open_bus(**site.settings()) as bus, crew(environment) as processes:
            await bus.subscribe(DEAD_LETTERS, "test", dead)
            await asyncio.gather(*(processes.start(role) for role in ("worker", "worker", "worker", "router")))
            await submit(bus, "poison.v1", {}, source="test", correlation_id="c-1")
            (letter,) = await dead.have(1)
            await processes.deaths(2)
        async with open_store(environment["SLIP_STORE"]) as store:
            known = await look_up(store, "c-1")
            alive = await workers(store)
    finally:
        site.close()
    assert letter.json()["error"]["code"] == "worker_lost"
    assert letter.json()["lastStep"]["id"] == "drink"
    # The first may have died before it could report that it had taken the message; the next ones report it first.
    takers = [one.by for one in known.told if one.kind == "started"] if known is not None else []
    assert len(takers) >= 2
    assert set(takers) <= set(alive), "each is known by the heartbeats it wrote"


async def _kill_now_and_then(processes: Crew, times: int, witness: Witness) -> None:
    """Kill one after the other, each when some messages have ended since the last: a process starts in no time."""
    for _ in range(times):
        await witness.until_ended(len(witness.ends) + 3)
        await processes.start(await processes.kill_one())


@pytest.mark.parametrize("kills", [3, pytest.param(30, marks=LONG)])
@in_loop_for(850)
async def test_every_message_ends_once_though_the_whole_process_is_killed(kills: int, tmp_path: Path) -> None:
    """With the embedded broker, router and workers in it."""
    environment = {
        "MESSAGE_BUS_DRIVER": "embedded",
        "SLIPSTREAM_DATA": str(tmp_path / "broker"),
        "SLIP_STORE": str(tmp_path / "slips.db"),
    }
    slips = [f"c-{number}" for number in range(10 * kills)]
    settings: dict[str, Any] = {"driver": "embedded", "data": str(tmp_path / "broker")}
    async with open_bus(**settings) as bus:
        for slip in slips:
            await submit(bus, "order.v1", {"reply": slip}, source="test", correlation_id=slip)
    async with crew(environment) as processes:
        for _ in range(kills):
            await processes.start("all")
            await asyncio.sleep(random.uniform(0.05, 0.4))
            await processes.kill_all()
        await processes.start("all")
        await _until_all_ended(tmp_path / "slips.db", len(slips))
    witness = Witness()
    async with open_bus(**settings) as bus:
        for topic in (PROGRESS, DEAD_LETTERS, EGRESS):
            await bus.subscribe(topic, "witness", witness)
        await witness.until_ended(len(slips))
    assert witness.ends == Counter(slips)
    assert witness.letters == Counter(slips)


async def _until_all_ended(store: Path, count: int) -> None:
    async with open_store(str(store)) as opened:
        while True:
            ended = await opened.tracked(ended=True, limit=10_000)
            if len([one for one in ended if "/" not in one.slip]) == count:
                return
            await asyncio.sleep(0.05)
