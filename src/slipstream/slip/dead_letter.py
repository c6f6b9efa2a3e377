"""What becomes of a message that cannot be completed: a dead letter, with all that is needed to understand it."""

from __future__ import annotations

import base64
from typing import Any

import msgspec

from slipstream.slip import hints
from slipstream.slip.event import Envelope, Event, Malformed, RoutingStep, Status, StepError, Time
from slipstream.slip.progress import duration_ms
from slipstream.slip.topics import DEAD_LETTERS


class StepSummary(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A line of the slip."""

    id: str
    status: Status
    attempt: int = 0
    duration_ms: float | None = None
    error: StepError | None = None


class Compensation(msgspec.Struct, frozen=True, rename="camel"):
    undone: tuple[str, ...]
    failed: tuple[str, ...]


class DeadLetter(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """Without an envelope it is something that could not be decoded; its bytes are in `data`."""

    type: str = DEAD_LETTERS
    at: Time
    error: StepError
    last_step: RoutingStep | None = None
    envelope: Envelope | None = None
    slip: tuple[StepSummary, ...] = ()
    event_type: str = ""
    payload: Any = None
    compensation: Compensation | None = None
    topic: str = ""
    """Where it came from, if it could not be decoded."""
    data: str = ""
    encoding: str = ""
    """`base64` where the data is no text."""


# The type says what it is, and is never left out, though it is always the same.
def encode_dead_letter(letter: DeadLetter) -> bytes:
    fields: dict[str, Any] = msgspec.to_builtins(letter)
    return msgspec.json.encode({"type": letter.type, **fields})


_decoder = msgspec.json.Decoder(DeadLetter)


def decode_dead_letter(data: bytes) -> DeadLetter:
    """Raises Malformed."""
    try:
        return _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Malformed(f"this is no dead letter: {error}") from error


def event_of(letter: DeadLetter) -> Event | None:
    """As it was when it was given up; None for what was no event."""
    return None if letter.envelope is None else Event(letter.envelope, letter.event_type, letter.payload)


def dead_letter(event: Event, step: RoutingStep | None, error: StepError, at: Time) -> DeadLetter:
    steps = event.envelope.routing_slip
    undoing = [step for step in steps if hints.UNDOES in step.attributes]
    return DeadLetter(
        at=at,
        error=error,
        last_step=step,
        envelope=event.envelope,
        slip=tuple(_summary(step) for step in steps),
        event_type=event.type,
        payload=event.payload,
        compensation=_compensation(undoing) if undoing else None,
    )


def undecoded(topic: str, data: bytes, error: StepError, at: Time) -> DeadLetter:
    try:
        text, encoding = data.decode(), ""
    except UnicodeDecodeError:
        text, encoding = base64.b64encode(data).decode(), "base64"
    return DeadLetter(at=at, error=error, topic=topic, data=text, encoding=encoding)


SHORT_CHARS = 1000


def shortened(letter: DeadLetter) -> DeadLetter:
    """For an engine that does not take the whole: who it was, and why."""
    envelope, error = letter.envelope, letter.error
    if envelope is not None:
        envelope = Envelope("1", envelope.source[:SHORT_CHARS], envelope.correlation_id[:SHORT_CHARS])
    message = None if error.message is None else error.message[:SHORT_CHARS]
    return DeadLetter(
        at=letter.at,
        error=StepError(error.code[:SHORT_CHARS], message, error.retryable),
        envelope=envelope,
        event_type=letter.event_type[:SHORT_CHARS],
        topic=letter.topic,
        data=letter.data[:SHORT_CHARS],
        encoding=letter.encoding,
    )


def _summary(step: RoutingStep) -> StepSummary:
    took = None if step.ended_at is None else duration_ms(step.started_at, step.ended_at)
    return StepSummary(step.id, step.status, step.attempt or 0, took, step.error)


def _compensation(undoing: list[RoutingStep]) -> Compensation:
    undone = [step.attributes[hints.UNDOES] for step in undoing if step.status is Status.OK]
    failed = [step.attributes[hints.UNDOES] for step in undoing if step.status is not Status.OK]
    return Compensation(tuple(undone), tuple(failed))
