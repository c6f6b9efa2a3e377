"""What Google's libraries raise, as the bus says it."""

from __future__ import annotations

import grpc
from google.api_core import exceptions as google
from google.auth.exceptions import GoogleAuthError, TransportError

from slipstream.bus.errors import BusError, BusUnavailable, InvalidArgument, TopicMissing, Unauthorized

GOOGLE_ERRORS = (google.GoogleAPIError, GoogleAuthError, grpc.RpcError)
"""All that a call may raise."""

PASSING = (
    google.Aborted,
    google.Cancelled,  # by the other side, when it goes away; nobody here cancels what is awaited
    google.DeadlineExceeded,
    google.InternalServerError,
    google.ResourceExhausted,
    google.ServiceUnavailable,
    google.Unknown,
)
"""Worth another try: those for which Google's own client publishes again."""


def as_google(error: BaseException) -> BaseException:
    """Errors of gRPC itself as those of Google's libraries, which have a class for each code."""
    if isinstance(error, grpc.RpcError):
        known: BaseException = google.from_grpc_error(error)
        return known
    return error


def is_passing(error: BaseException) -> bool:
    return isinstance(as_google(error), PASSING)


def bus_error(error: BaseException, what: str) -> BusError:
    """`what` is what was not done, to what: "topic orders was not created"."""
    error = as_google(error)
    text = f"{what}: {_reason(error)}"
    match error:
        case google.NotFound():
            return TopicMissing(text)
        case google.Forbidden():
            return Unauthorized(f"{text}. Give the service account the role Pub/Sub Editor, or one that allows this")
        case google.Unauthenticated() | google.Unauthorized():
            return Unauthorized(f"{text}. Check the credentials (GOOGLE_APPLICATION_CREDENTIALS)")
        case google.BadRequest():
            return InvalidArgument(text)
        case TransportError():
            return BusUnavailable(text)
        case GoogleAuthError():
            return Unauthorized(f"{text}. Check the credentials (GOOGLE_APPLICATION_CREDENTIALS)")
        case _:
            return BusUnavailable(text)


def _reason(error: BaseException) -> str:
    """Without the number of an HTTP status that nobody sent."""
    if isinstance(error, google.RetryError) and error.cause is not None:
        return _reason(error.cause)
    message = getattr(error, "message", None) or str(error)
    return f"{message} ({type(error).__name__})"
