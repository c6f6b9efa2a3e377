"""What the broker refuses, in the words of the bus."""

from __future__ import annotations

from slipstream import broker
from slipstream.bus.errors import BusError, BusUnavailable, InvalidArgument, TopicMissing


def translate(error: broker.BrokerError) -> BusError:
    match error:
        case broker.NotFound():
            return TopicMissing(str(error))
        case broker.InvalidArgument():
            return InvalidArgument(str(error))
        case broker.Unavailable() | broker.Overloaded():
            return BusUnavailable(str(error))
        case _:
            return BusError(str(error))
