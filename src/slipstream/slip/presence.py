"""Heartbeats of workers, in the store: they tell a worker that is busy from one that has died."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Mapping

import msgspec

from slipstream.endings import end_tasks
from slipstream.slip import clock
from slipstream.slip.store import Store, StoreUnavailable

log = logging.getLogger(__name__)

RECORD = "workers"
"""The record of the store that holds a fact for each worker."""
HEARTBEAT_S = 3.0
LOST_AFTER_MS = 10_000
"""How long a worker may be silent before it counts as dead: three heartbeats, and a little."""


class Presence(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A worker, as it last wrote about itself."""

    began_ms: int
    """When it started."""
    at_ms: int
    """When it last wrote."""
    steps: dict[str, str] = {}
    """The topic of each of its steps."""
    stopped: bool = False
    """It has come to an orderly end."""

    def is_running(self, now_ms: int) -> bool:
        return not self.stopped and now_ms - self.at_ms <= LOST_AFTER_MS


Workers = Mapping[str, Presence]
"""The workers by name, as progress names them in `by`."""


_numbers = itertools.count(1)
"""A process may run several workers, all with the name of the process."""


async def workers(store: Store) -> dict[str, Presence]:
    """Return the workers that the store knows, dead ones included, by name. Those of one process are one."""
    found: dict[str, Presence] = {}
    for fact, value in (await store.facts(RECORD)).items():
        name, worker = fact.rpartition("#")[0], msgspec.json.decode(value, type=Presence)
        found[name] = worker if name not in found else _together(found[name], worker)
    return found


def _together(one: Presence, other: Presence) -> Presence:
    """Return the presence of a process with two workers. Where one of them has died, an earlier process had it."""
    older, newer = sorted((one, other), key=lambda each: each.at_ms)
    if newer.at_ms - older.at_ms > LOST_AFTER_MS:
        return newer
    steps = older.steps | newer.steps
    return Presence(min(one.began_ms, other.began_ms), newer.at_ms, steps, one.stopped and other.stopped)


class Heartbeat:
    """Writes every few seconds that a worker is alive, and at its end that it has stopped."""

    def __init__(self, store: Store, name: str, steps: dict[str, str], ttl_ms: int) -> None:
        self._store = store
        self._name = name
        self._fact = f"{name}#{next(_numbers)}"
        self._began_ms = clock.now_ms()
        self._steps = steps
        self._ttl_ms = ttl_ms
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self._remove_old()
        await self._write(stopped=False)
        self._task = asyncio.create_task(self._beat())

    async def stop(self) -> None:
        if self._task is None:
            return
        await end_tasks(self._task)
        try:
            await self._write(stopped=True)
        except StoreUnavailable as error:
            log.warning("worker %s stops, and the store cannot be told: %s", self._name, error)

    async def _beat(self) -> None:
        failing = False
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            try:
                await self._write(stopped=False)
                failing = False
            except Exception:
                if not failing:
                    log.exception("worker %s: no heartbeat can be written; trying again", self._name)
                failing = True

    async def _write(self, *, stopped: bool) -> None:
        value = msgspec.json.encode(Presence(self._began_ms, clock.now_ms(), self._steps, stopped))
        await self._store.put(RECORD, self._fact, value, ttl_ms=self._ttl_ms)

    async def _remove_old(self) -> None:
        """Redis expires whole records only, and this one is always in use."""
        oldest_ms = clock.now_ms() - self._ttl_ms
        facts = await self._store.facts(RECORD)
        old = [fact for fact, value in facts.items() if msgspec.json.decode(value, type=Presence).at_ms < oldest_ms]
        if old:
            await self._store.remove(RECORD, *old)
