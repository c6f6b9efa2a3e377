"""The console in `slipstream serve`: with the broker as all it knows, or as a way to the process that knows more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

from slipstream.api import Stats
from slipstream.api.keys import KeyPlace
from slipstream.api.server import ServerCondition
from slipstream.console import Console, FarConsole, Forwarder, Sources, create_console
from slipstream.engine import Engine
from slipstream.server.app import Console as ConsoleApp
from slipstream.server.v2.events import Sampler
from slipstream.server.v2.keys import find_places
from slipstream.server.v2.server import server_conditions
from slipstream.settings import Settings


def console_of(settings: Settings) -> Callable[[Engine], ConsoleApp]:
    def make(engine: Engine) -> Console | FarConsole:
        if settings.console_url:
            forwarder = Forwarder(
                settings.console_url,
                what="the console",
                start="slipstream console",
                timeout_ms=settings.console_timeout_ms,
                setting="SLIPSTREAM_CONSOLE_TIMEOUT_MS",
            )
            return FarConsole(forwarder)
        return create_console(Sources(EngineStats(engine), state=str(Path(settings.data) / "console.json")))

    return make


class EngineStats:
    """Looks at the broker in its own process."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._sampler = Sampler(engine)

    async def samples(self, interval_ms: int) -> AsyncGenerator[Stats, None]:
        while True:
            await asyncio.sleep(interval_ms / 1000)
            yield await self._sampler.sample()

    async def trouble(self) -> str:
        return "" if self._engine.trouble is None else self._engine.trouble.message

    async def conditions(self) -> list[ServerCondition]:
        return server_conditions(self._engine)

    async def places(self, key: str) -> list[KeyPlace]:
        return await find_places(self._engine, key)

    async def close(self) -> None:
        """There is nothing to end."""
