"""What goes wrong on a bus, the same on every driver."""

from __future__ import annotations


class BusError(Exception):
    """Anything a bus refuses or cannot do. The message says what happened, to what, and what to do next."""


class InvalidArgument(BusError):
    """What was asked for cannot be right, on this driver or on any; it will not be by repeating it."""


class BusUnavailable(BusError):
    """The engine cannot be reached, or refuses everybody, now."""


class Unauthorized(BusUnavailable):
    """The engine knows us, or wants to, and does not let us in."""


class TopicMissing(BusError):
    """There is no such topic or subscription, and the settings say that it is not to be made (BUS_ENSURE=false)."""


class PublishFailed(BusError):
    """Messages were not stored, as far as anybody here knows."""

    def __init__(self, message: str, *, count: int = 1) -> None:
        super().__init__(message)
        self.count = count


class Unsupported(BusError):
    """This engine has no such thing, and nothing above it can make up for that."""


class BusClosed(BusError):
    """The bus was closed: open another."""


class DeadLetterMissing(BusError):
    """There is no dead letter at this place: it was sent back or discarded, or has expired."""
