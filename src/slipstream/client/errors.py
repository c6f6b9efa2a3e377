"""What can go wrong between a client and its server, by what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus

from slipstream.api import ErrorResponse, Failure, RedriveStatus


class SlipstreamError(Exception):
    """Whatever a client raises. Its text says what happened and what to do."""

    def __init__(self, message: str, *, status: int = 0, code: str = "") -> None:
        super().__init__(message)
        self.status = status
        """Of the answer; 0 where there was none."""
        self.code = code
        """The server's name for it, such as INVALID_ARGUMENT."""


class InvalidArgument(SlipstreamError):
    """The request cannot be right; it will not be by repeating it."""


class TooLarge(InvalidArgument):
    """More than the server takes in one request."""


class NotFound(SlipstreamError):
    """There is no such topic, group, dead letter or redrive."""


class Conflict(SlipstreamError):
    """It does not fit the state of things."""


class InProgress(Conflict):
    """Somebody is at it right now: at this effect (`once`), or storing this message. Come back later."""


class LeaseLost(Conflict):
    """These messages are no longer yours: another worker has them, or they were finished. Let go of them."""

    def __init__(self, message: str, *, failures: Sequence[Failure] = (), status: int = 409) -> None:
        super().__init__(message, status=status)
        self.failures = list(failures)
        """Which, and why. The others of the same call were settled."""


class OffsetOutOfRange(SlipstreamError):
    """What was to be read has been removed by retention. Read on from `earliest_offset`."""

    def __init__(self, message: str, *, earliest_offset: int = 0, status: int = 410, code: str = "") -> None:
        super().__init__(message, status=status, code=code)
        self.earliest_offset = earliest_offset


class Overloaded(SlipstreamError):
    """The server asks producers to wait; it has stored nothing of this request."""

    def __init__(self, message: str, *, retry_after_ms: int = 0, status: int = 429, code: str = "") -> None:
        super().__init__(message, status=status, code=code)
        self.retry_after_ms = retry_after_ms


class BrokerFull(SlipstreamError):
    """The server has reached one of its limits, such as the number of topics. Waiting does not help."""


class Unavailable(SlipstreamError):
    """The server, or something before it, cannot answer for now. Whether it did what was asked is not known."""

    def __init__(self, message: str, *, retry_after_ms: int = 0, status: int = 503, code: str = "") -> None:
        super().__init__(message, status=status, code=code)
        self.retry_after_ms = retry_after_ms


class ConnectionFailed(SlipstreamError):
    """No answer came."""

    def __init__(self, message: str, *, sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent
        """False: the server was never reached and has done nothing. True: nobody knows."""


class ProduceFailed(SlipstreamError):
    """Of what a producer was given, `count` messages were not stored; the first of the reasons is the cause."""

    def __init__(self, message: str, *, count: int = 0) -> None:
        super().__init__(message)
        self.count = count


class RedriveFailed(SlipstreamError):
    """A redrive ended before it was done. Start it again: what was redriven is passed over."""

    def __init__(self, message: str, *, redrive: RedriveStatus | None = None) -> None:
        super().__init__(message)
        self.redrive = redrive


def refusal(status: int, answer: ErrorResponse, retry_after_ms: int) -> SlipstreamError:
    """The exception for an answer of 400 and above."""
    text, code = answer.message or answer.error or f"the server answered {status}", answer.error
    match status:
        case HTTPStatus.NOT_FOUND:
            return NotFound(text, status=status, code=code)
        case HTTPStatus.CONFLICT:
            return (InProgress if answer.reason == "in_progress" else Conflict)(text, status=status, code=code)
        case HTTPStatus.GONE:
            return OffsetOutOfRange(text, earliest_offset=answer.earliest_offset or 0, status=status, code=code)
        case HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
            return TooLarge(text, status=status, code=code)
        case HTTPStatus.TOO_MANY_REQUESTS:
            return Overloaded(text, retry_after_ms=retry_after_ms, status=status, code=code)
        case HTTPStatus.INSUFFICIENT_STORAGE:
            return BrokerFull(text, status=status, code=code)
        case HTTPStatus.NOT_IMPLEMENTED:
            return SlipstreamError(text, status=status, code=code)  # nor will it be, however often it is asked for
        case _ if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return Unavailable(text, retry_after_ms=retry_after_ms, status=status, code=code)
        case _:
            return InvalidArgument(text, status=status, code=code)
