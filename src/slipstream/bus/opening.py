"""Opens a bus on the engine that the settings name."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator
from types import TracebackType
from typing import Any

from msgspec.structs import asdict
from prometheus_client import CollectorRegistry

from slipstream.bus.bus import Bus
from slipstream.bus.drivers import Finding, make_driver
from slipstream.bus.errors import InvalidArgument
from slipstream.bus.settings import BusSettings, load_settings


class Opening:
    """`await open_bus()`, or `async with open_bus() as bus`."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    def __await__(self) -> Generator[Any, None, Bus]:
        return self._open().__await__()

    def __getattr__(self, name: str) -> Any:
        if hasattr(Bus, name):
            raise AttributeError("the bus is not open yet: bus = await open_bus(), or async with open_bus() as bus")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    async def _open(self) -> Bus:
        await self._bus.open()
        return self._bus

    async def __aenter__(self) -> Bus:
        return await self._open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._bus.__aexit__(kind, error, trace)


def open_bus(
    settings: BusSettings | None = None, *, registry: CollectorRegistry | None = None, **given: Any
) -> Opening:
    """A bus on the engine that the environment names (MESSAGE_BUS_DRIVER; else the server that runs here, or the
    embedded broker), or as `given`, such as `driver="nats", prefix="dev."`. Its metrics are in `registry`, Prometheus'
    usual one by default.

    Example:
        async with open_bus() as bus:
            await bus.publish("orders", "two books")
    """
    if settings is None:
        settings = load_settings(given)
    elif given:
        raise InvalidArgument("give settings, or single ones by name, and not both")
    else:
        usual = asdict(BusSettings())
        # They may not have been checked. Those that are as usual count as not set: the engine may depend on it.
        settings = load_settings({name: value for name, value in asdict(settings).items() if value != usual[name]}, {})
    return Opening(Bus(settings, make_driver(settings), registry))


async def examine(settings: BusSettings) -> AsyncIterator[Finding]:
    """What there is to say about the engine of these settings: for `slipstream bus doctor`."""
    async for finding in make_driver(settings).examine(settings.prefix):
        yield finding
