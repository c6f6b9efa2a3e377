"""The bus as the console's process uses it: opened when it is first needed, and opened again by itself."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import msgspec
from prometheus_client import CollectorRegistry

from slipstream.bus import Bus, BusError, BusSettings, DeadLetterMissing, InvalidArgument, TopicMissing, open_bus
from slipstream.console.answers import Refused

CONNECT_MS = 3_000


class ConnectedBus:
    """Makes no topics and samples no lags.

    Example:
        connected = ConnectedBus(settings)
        async with connected.asked() as bus:
            info = await bus.topic("orders")
    """

    def __init__(self, settings: BusSettings) -> None:
        self.settings = msgspec.structs.replace(
            settings, ensure=False, lag_interval_ms=0, connect_timeout_ms=min(settings.connect_timeout_ms, CONNECT_MS)
        )
        self._bus: Bus | None = None
        self._opening = asyncio.Lock()

    async def open(self) -> Bus:
        async with self._opening:
            if self._bus is None:
                self._bus = await open_bus(self.settings, registry=CollectorRegistry())
        return self._bus

    async def close(self) -> None:
        if self._bus is not None:
            await self._bus.close()
            self._bus = None

    @contextlib.asynccontextmanager
    async def asked(self) -> AsyncIterator[Bus]:
        """Yield the bus; what goes wrong with it becomes an answer."""
        try:
            yield await self.open()
        except InvalidArgument as error:
            raise Refused("INVALID_ARGUMENT", str(error)) from error
        except (TopicMissing, DeadLetterMissing) as error:
            raise Refused("NOT_FOUND", str(error)) from error
        except BusError as error:
            raise Refused("UNAVAILABLE", str(error), retry_after_s=1) from error
