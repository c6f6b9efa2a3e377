"""One driver an engine, all with the same skeleton (`driver`). The library of an engine is imported when it is chosen,
for only the embedded broker and the HTTP client are part of a plain installation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slipstream.bus.drivers.driver import Delivery, Driver, Finding, Outgoing, Source, Stored, TopicInfo
from slipstream.bus.errors import InvalidArgument

if TYPE_CHECKING:
    from slipstream.bus.settings import BusSettings

__all__ = ["Delivery", "Driver", "Finding", "Outgoing", "Source", "Stored", "TopicInfo", "make_driver"]


def make_driver(settings: BusSettings) -> Driver:
    """The driver the settings name. It connects when it is opened."""
    match settings.driver:
        case "auto":
            raise InvalidArgument("these settings name no engine yet: make them with load_settings")
        case "embedded" | "memory":
            from slipstream.bus.drivers.embedded import EmbeddedDriver  # noqa: PLC0415

            return EmbeddedDriver(settings)
        case "http":
            from slipstream.bus.drivers.http import HttpDriver  # noqa: PLC0415

            return HttpDriver(settings)
        case "nats":
            try:
                from slipstream.bus.drivers.nats import make_nats_driver  # noqa: PLC0415
            except ImportError as error:
                raise _missing("nats", error) from error
            return make_nats_driver(settings)
        case "pubsub":
            try:
                from slipstream.bus.drivers.pubsub import PubSubDriver  # noqa: PLC0415
            except ImportError as error:
                raise _missing("pubsub", error) from error
            return PubSubDriver(settings)


def _missing(extra: str, error: ImportError) -> InvalidArgument:
    return InvalidArgument(
        f"MESSAGE_BUS_DRIVER={extra} needs libraries that are not installed ({error}): "
        f"pip install 'slipstream[{extra}]'"
    )
