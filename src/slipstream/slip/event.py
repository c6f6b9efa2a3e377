"""What travels: an event in an envelope that carries its own itinerary. The names on the wire are camelCase.

Decoding is strict. A field that is not known is refused, because whoever sent it believes that it means something.
"""

from __future__ import annotations

import datetime as dt
import enum
from typing import Annotated, Any, Literal

import msgspec

Time = Annotated[dt.datetime, msgspec.Meta(tz=True)]


class Status(enum.StrEnum):
    PENDING = "PENDING"
    OK = "OK"
    ERROR = "ERROR"
    SKIP = "SKIP"


class StepError(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """Why a step failed, and whether it makes sense to try again."""

    code: str
    message: str | None = None
    retryable: bool | None = None


class RoutingStep(
    msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True, forbid_unknown_fields=True
):
    """One hop of the itinerary, planned or done.

    Example:
        RoutingStep("retrieval", Status.PENDING, next_topic="internal.retrieval.v1", max_attempts=5)
    """

    id: Annotated[str, msgspec.Meta(min_length=1)]
    status: Status
    v: str = "1"
    attempt: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """Counted from 0."""
    max_attempts: Annotated[int, msgspec.Meta(ge=1)] | None = None
    next_topic: str | None = None
    attributes: dict[str, str] = {}
    """Hints for the transport, and under `slip.` what the router has planned for the step: see `hints`."""
    started_at: Time | None = None
    ended_at: Time | None = None
    error: StepError | None = None
    notes: str | None = None


class Envelope(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """Who sent it, what it belongs to, and where it goes. Without a `routing_slip` it has not been planned yet."""

    v: Literal["1"]
    source: str
    correlation_id: Annotated[str, msgspec.Meta(min_length=1)]
    trace_id: str | None = None
    reply_to: str | None = None
    timeout_at: Time | None = None
    routing_slip: tuple[RoutingStep, ...] = ()


class Event(msgspec.Struct, frozen=True, gc=False, rename="camel", forbid_unknown_fields=True):
    """A message on its way.

    Example:
        Event(Envelope("1", "ingress.twitch", "c-123"), "chat.message.v1", {"text": "!hello"})
    """

    envelope: Envelope
    type: Annotated[str, msgspec.Meta(min_length=1)]
    payload: Any = None


class Malformed(ValueError):
    """These bytes are no event that can be routed: the reason says why. `event` is what they are, if they are one."""

    def __init__(self, reason: str, event: Event | None = None) -> None:
        super().__init__(reason)
        self.event = event


_decoder = msgspec.json.Decoder(Event)
_encoder = msgspec.json.Encoder()


def decode(data: bytes) -> Event:
    """Raises Malformed."""
    try:
        return _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Malformed(f"this is no event: {error}") from error


def encode(event: Event) -> bytes:
    return _encoder.encode(event)
