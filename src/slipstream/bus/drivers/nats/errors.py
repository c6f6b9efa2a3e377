"""What NATS refuses, in the words of the bus."""

from __future__ import annotations

from nats.errors import Error as NatsError
from nats.errors import MaxPayloadError
from nats.js.errors import APIError, NoStreamResponseError, NotFoundError, ServiceUnavailableError

from slipstream.bus.errors import BusError, BusUnavailable, InvalidArgument, TopicMissing, Unauthorized

FAILURES = (NatsError, TimeoutError, OSError)
"""All that a call of nats-py raises for what is not our own mistake."""


class Denied(NatsError):
    """The server does not let us publish to a subject: it says so beside the connection, and answers nothing."""

    def __init__(self, subject: str) -> None:
        super().__init__(f"no permission to publish to {subject}")


def translate(error: Exception, what: str) -> BusError:
    match error:
        case Denied():
            return Unauthorized(f"{what}: {error}")
        case MaxPayloadError():
            return InvalidArgument(f"{what}: larger than the server takes (max_payload)")
        case NotFoundError():
            return TopicMissing(f"{what}: {_text(error)}")
        case ServiceUnavailableError() | NoStreamResponseError():
            if isinstance(error, ServiceUnavailableError) and error.err_code is not None:
                return BusUnavailable(f"{what}: {_text(error)}")
            return BusUnavailable(f"{what}: JetStream does not answer; is it enabled (nats-server -js)?")
        case APIError():
            return BusError(f"{what}: {_text(error)}")
        case NatsError() | TimeoutError() | OSError():
            return BusUnavailable(f"{what}: {error or type(error).__name__}")
        case _:
            return BusError(f"{what}: {error}")


def _text(error: APIError) -> str:
    return f"{error.description or 'refused'} (code {error.code}, {error.err_code})"
