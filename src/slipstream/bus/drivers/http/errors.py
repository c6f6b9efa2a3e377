"""What the client raises, as what it means on a bus."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from http import HTTPStatus

from slipstream.bus.errors import (
    BusError,
    BusUnavailable,
    InvalidArgument,
    PublishFailed,
    TopicMissing,
    Unauthorized,
)
from slipstream.client import errors as client

AWAY = (client.ConnectionFailed, client.Unavailable, client.Overloaded)
"""What passes by itself."""


@contextlib.contextmanager
def as_bus_errors() -> Iterator[None]:
    try:
        yield
    except client.SlipstreamError as error:
        raise bus_error(error) from error


def bus_error(error: client.SlipstreamError) -> BusError:
    match error:
        case client.SlipstreamError(status=HTTPStatus.UNAUTHORIZED | HTTPStatus.FORBIDDEN):
            # Not by the server, which asks nobody who they are, but by whatever stands before it.
            return Unauthorized(f"{error}; set SLIPSTREAM_URL to an address that lets this process in")
        case client.InvalidArgument() | client.OffsetOutOfRange():
            return InvalidArgument(str(error))
        case client.NotFound():
            return TopicMissing(f"{error}; create it, or let the bus do so with BUS_ENSURE=true")
        case client.ConnectionFailed() | client.Unavailable() | client.Overloaded():
            return BusUnavailable(str(error))
        case _:
            return BusError(str(error))


def publish_error(error: BaseException, topic: str) -> BusError:
    """Why a message was not stored. Nothing but the client fails here, and what is not its own word is not hidden."""
    if isinstance(error, client.SlipstreamError) and not isinstance(error, AWAY):
        found = bus_error(error)
        if type(found) is not BusError:
            return found
    return PublishFailed(f"not stored in {topic}, as far as is known here: {error or type(error).__name__}")
