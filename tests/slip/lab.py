"""Router and workers on a bus, and what they tell."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec

from slipstream.bus import Bus, Message, Subscription
from slipstream.slip import Progress, Router, RouteTable, SlipSettings, Worker, load_settings, open_store, submit
from slipstream.slip.store import Store
from slipstream.slip.topics import DEAD_LETTERS, EGRESS, PROGRESS

FAST: dict[str, Any] = {"retry_base_ms": 10, "poll_ms": 20}


def fast(**given: Any) -> SlipSettings:
    return load_settings({**FAST, **given}, {})


class Lab:
    """What came out of a bus with slips on it."""

    def __init__(self, bus: Bus, store: Store, settings: SlipSettings) -> None:
        self.bus = bus
        self.store = store
        self.settings = settings
        self.progress: list[Progress] = []
        self.dead: list[Any] = []
        self.delivered: list[Any] = []
        self.subscriptions: list[Subscription] = []
        self._came = asyncio.Event()

    async def listen(self) -> None:
        for topic, keep in ((PROGRESS, self._progress), (DEAD_LETTERS, self._dead), (EGRESS, self._delivered)):
            self.subscriptions.append(await self.bus.subscribe(topic, "lab", keep))

    async def _progress(self, message: Message) -> None:
        self.progress.extend(message.json(list[Progress]))
        self._came.set()

    async def _dead(self, message: Message) -> None:
        self.dead.append(message.json())
        self._came.set()

    async def _delivered(self, message: Message) -> None:
        self.delivered.append(message.json())
        self._came.set()

    async def until(self, question: Callable[[], bool]) -> None:
        """Whoever waits for ever is ended by the limit of the test."""
        while not question():
            self._came.clear()
            await self._came.wait()

    def kinds(self, correlation_id: str = "c-1") -> list[str]:
        """What was told of a slip, such as `finished charge`."""
        told = [one for one in self.progress if one.correlation_id == correlation_id]
        told.sort(key=lambda one: one.at)
        return [f"{one.kind} {one.step}".strip() for one in told]

    async def ended(self, correlation_id: str = "c-1", run: int = 0) -> Progress:
        def end() -> Progress | None:
            return next(
                (
                    one
                    for one in self.progress
                    if one.correlation_id == correlation_id
                    and one.run == run
                    and one.kind in {"completed", "dead-lettered"}
                ),
                None,
            )

        await self.until(lambda: end() is not None)
        found = end()
        assert found is not None
        return found

    async def told(self, what: str, correlation_id: str = "c-1") -> None:
        await self.until(lambda: what in self.kinds(correlation_id))

    async def until_kept(self, correlation_id: str, fact: str) -> None:
        """The store tells nobody what is written into it."""
        while await self.store.get(f"slip:{correlation_id}", fact) is None:
            await asyncio.sleep(0)

    async def submit(self, event_type: str = "order.v1", payload: Any = None, **given: Any) -> str:
        return await submit(
            self.bus,
            event_type,
            {} if payload is None else payload,
            **{"source": "test", "correlation_id": "c-1", **given},
        )


def table(*steps: Any, event_type: str = "order.v1", **route: Any) -> RouteTable:
    return RouteTable.of({"routes": {event_type: {"steps": list(steps), **route}}})


@contextlib.asynccontextmanager
async def lab(
    bus: Bus,
    routes: RouteTable | Router,
    *workers: Worker,
    settings: SlipSettings | None = None,
    store: Store | None = None,
) -> AsyncIterator[Lab]:
    settings = settings or fast()
    router = routes if isinstance(routes, Router) else Router(routes)
    async with contextlib.AsyncExitStack() as stack:
        if store is None:
            store = await stack.enter_async_context(open_store(":memory:"))
        made = Lab(bus, store, settings)
        await made.listen()
        services: list[Router | Worker] = [router, *workers]
        for service in services:
            await stack.enter_async_context(service.running(bus, store, settings))
        yield made
        await asyncio.gather(*(subscription.close() for subscription in made.subscriptions))


def summary(letter: dict[str, Any]) -> dict[str, str]:
    return {step["id"]: step["status"] for step in letter["slip"]}


def plain(value: object) -> Any:
    return msgspec.to_builtins(value)
