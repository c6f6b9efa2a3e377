"""Routers and workers as programs: on the bus and the store that the environment names, until they are told to stop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, Protocol

from slipstream.bus import Bus, open_bus
from slipstream.program_log import log_to_stderr
from slipstream.slip.errors import InvalidSlip
from slipstream.slip.settings import SlipSettings, load_settings
from slipstream.slip.store import Store, open_store


class Service(Protocol):
    """A router or a worker."""

    def running(
        self, bus: Bus, store: Store, settings: SlipSettings
    ) -> contextlib.AbstractAsyncContextManager[object]: ...


def run(*services: Service) -> None:
    """Together in one process, until SIGTERM or Ctrl-C: with the embedded broker, that is the only way.

    Example:
        run(Router("routes.yaml"), worker)

    Unless the program has configured logging, what it logs is written to stderr.
    """
    log_to_stderr()
    asyncio.run(_run(services))


async def _run(services: tuple[Service, ...]) -> None:
    async with serving(*services) as bus:
        await bus.until_stopped()


@contextlib.asynccontextmanager
async def serving(*services: Service, settings: SlipSettings | None = None, **bus_settings: Any) -> AsyncIterator[Bus]:
    """The same for a program that does something else meanwhile: yields the bus they are on.

    Example:
        async with serving(Router("routes.yaml"), worker) as bus:
            await submit(bus, event)
    """
    if not services:
        raise InvalidSlip("nothing would run: give a router, workers, or both")
    settings = settings or load_settings({})
    async with (
        open_bus(**bus_settings) as bus,
        open_store(settings.store) as store,
        contextlib.AsyncExitStack() as together,
    ):
        for service in services:
            await together.enter_async_context(service.running(bus, store, settings))
        yield bus
