"""Listening in: every partition of every topic that matches is read as it grows. Nothing is leased, and nobody's
progress changes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Coroutine
from typing import Any, NamedTuple

from slipstream.bus.drivers.driver import Stored
from slipstream.bus.drivers.http.errors import AWAY, bus_error
from slipstream.bus.drivers.http.follow import read_on
from slipstream.client.async_client import AsyncClient
from slipstream.client.errors import NotFound, SlipstreamError

log = logging.getLogger(__name__)

LOOK_EVERY_S = 1.0
"""For topics that are new, or gone."""

PAGES_MAX = 16
"""Read and not yet taken by who listens; then reading waits, for the log does not run away."""


class Branch(NamedTuple):
    """A partition of a topic; of one that was made again it is another one."""

    topic: str
    topic_id: str
    partition: int


class Tap:
    def __init__(self, client: AsyncClient, prefix: str) -> None:
        self._client = client
        self._prefix = prefix
        self._pages: asyncio.Queue[list[Stored] | SlipstreamError] = asyncio.Queue(PAGES_MAX)
        self._followers: dict[Branch, asyncio.Task[None]] = {}

    async def messages(self, listening: asyncio.Event | None) -> AsyncGenerator[Stored, None]:
        watch = asyncio.create_task(self._told(self._watch(listening)))
        try:
            while True:
                page = await self._pages.get()
                if isinstance(page, SlipstreamError):
                    raise bus_error(page) from page
                for stored in page:
                    yield stored
        finally:
            tasks = [watch, *self._followers.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _told(self, work: Coroutine[Any, Any, None]) -> None:
        """What ends a task ends the tap: half of what passes would be worse than an error."""
        try:
            await work
        except SlipstreamError as error:
            await self._pages.put(error)

    async def _watch(self, listening: asyncio.Event | None) -> None:
        """Topics that are there when this begins are followed from their end, those that come later from their start:
        all of them is new."""
        begun = False
        failures = 0
        while True:
            try:
                await self._look(from_end=not begun)
            except AWAY as error:
                failures += 1
                if failures == 1:
                    log.warning("the tap hears nothing for now: %s; trying on", error)
                await asyncio.sleep(self._client.retries.endless_pause_ms(failures, error) / 1000)
                continue
            if failures:
                log.info("the tap goes on")
                failures = 0
            if not begun:
                begun = True
                if listening is not None:
                    listening.set()
            await asyncio.sleep(LOOK_EVERY_S)

    async def _look(self, *, from_end: bool) -> None:
        found: set[Branch] = set()
        for topic in await self._client.topics():
            if topic.name.startswith(self._prefix):
                branches = [Branch(topic.name, topic.id, number) for number in range(topic.partitions)]
                found.update(branches)
                new = [branch for branch in branches if branch not in self._followers]
                if new:
                    starts = await self._ends(topic.name) if from_end else {}
                    for branch in new:
                        self._follow(branch, starts.get(branch.partition))
        for branch in self._followers.keys() - found:
            self._followers.pop(branch).cancel()

    async def _ends(self, topic: str) -> dict[int, int]:
        try:
            return {each.partition: each.next_offset for each in (await self._client.topic(topic)).partitions}
        except NotFound:
            return {}  # deleted in this moment: what has its name from now on is new

    def _follow(self, branch: Branch, start: int | None) -> None:
        self._followers[branch] = asyncio.create_task(self._told(self._read_on(branch, start)))

    async def _read_on(self, branch: Branch, start: int | None) -> None:
        # An outage is told once, by `_watch`, and not for every partition.
        pages = read_on(self._client, branch.topic, branch.partition, start, level=logging.DEBUG)
        try:
            async with contextlib.aclosing(pages):
                async for page in pages:
                    await self._pages.put(page)
        except NotFound:
            return  # it was deleted; one that is made again is found by looking
