"""The console in `slipstream serve`: with the broker as all it knows, or as a way to the process that knows more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from functools import partial
from pathlib import Path

from slipstream.api import Stats
from slipstream.api.keys import KeyPlace
from slipstream.api.server import ServerCondition
from slipstream.broker import BrokerError, Partition
from slipstream.console import Console, FarConsole, Forwarder, Sources, create_console
from slipstream.console.sources import Away, LogRecord, TopicLog
from slipstream.engine import Engine, first_offset, read_slice
from slipstream.record import LogUnreadable
from slipstream.server.app import Console as ConsoleApp
from slipstream.server.v2.events import Sampler
from slipstream.server.v2.keys import find_places
from slipstream.server.v2.server import server_conditions
from slipstream.settings import Settings
from slipstream.store import LogSlice

READ_BYTES = 1 << 20


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

    async def log_of(self, topic: str) -> TopicLog | None:
        found = self._engine.broker.state.topics.get(topic)
        return None if found is None else TopicLog(found.created_ms, tuple(map(first_offset, found.partitions)))

    async def log(self, topic: str, partition: int, start: int) -> AsyncGenerator[LogRecord, None]:
        try:
            found = self._engine.broker.topic(topic).partitions[partition]
            index = found.log.index_from(start)
            while index < found.committed:
                index = max(index, found.first_index)  # retention may have removed some
                records = await read_slice(partial(self._slice, found, index), LogSlice.records)
                for record in records:
                    yield LogRecord(record.offset, record.timestamp_ms, record.value)
                index += len(records)
        except (BrokerError, LogUnreadable) as error:
            raise Away(f"{topic}/{partition} cannot be read: {error}") from error

    def _slice(self, partition: Partition, first: int) -> LogSlice:
        self._engine.check_there(partition.topic)
        return self._engine.slice(partition, first, partition.committed, READ_BYTES)

    async def close(self) -> None:
        """There is nothing to end."""
