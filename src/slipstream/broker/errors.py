"""What the broker refuses, in words a client can act on. `code` is the name of the error on the wire."""

from __future__ import annotations


class BrokerError(Exception):
    """A command was refused; nothing changed."""

    code = "INTERNAL"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class InvalidArgument(BrokerError):
    """The command cannot be carried out as it was asked."""

    code = "INVALID_ARGUMENT"


class NotFound(InvalidArgument):
    """It names something that is not there. `/v1` knows no such code and says INVALID_ARGUMENT, as DriftQ does."""


class FailedPrecondition(BrokerError):
    """The command is well formed but the state it needs is not there (someone else owns it, it is under way)."""

    code = "FAILED_PRECONDITION"


class InProgress(FailedPrecondition):
    """Somebody is at it right now; a moment later it is done, or may be tried again (ruling 8)."""


class Overloaded(BrokerError):
    """The slowest group has too much left to do; the producer should wait and try again (ruling 10)."""

    code = "RESOURCE_EXHAUSTED"
    reason = "overloaded"

    def __init__(self, message: str, retry_after_ms: int) -> None:
        super().__init__(message)
        self.retry_after_ms = retry_after_ms


class BrokerFull(BrokerError):
    """One of the limits of the broker is reached: to wait does not help, but to delete something, or a higher limit."""

    code = "RESOURCE_EXHAUSTED"

    def __init__(self, limit: str, count: int, what: str) -> None:
        super().__init__(
            f"the broker is full: it has {count:,} {what} ({limit}); delete those that are not needed, or raise {limit}"
        )
        self.reason = limit


class DiskLow(Overloaded):
    """The disk is nearly full; producers should wait until there is room. Everything else goes on."""

    reason = "disk_low"


class Unavailable(BrokerError):
    """The broker cannot take writes now, whatever the client sends."""

    code = "UNAVAILABLE"

    def __init__(self, message: str, retry_after_ms: int = 0) -> None:
        super().__init__(message)
        self.retry_after_ms = retry_after_ms
        """When it may be worth to try again; 0 where somebody has to mend something first."""
