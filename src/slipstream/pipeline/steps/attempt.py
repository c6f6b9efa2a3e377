"""One message at a step: what came, and what is sent for it."""

from __future__ import annotations

import datetime as dt
import random

import msgspec
from msgspec.structs import replace

from slipstream.slip.dead_letter import encode_dead_letter, shortened, undecoded
from slipstream.slip.event import Envelope, Event, Malformed, RoutingStep, Status, StepError, encode
from slipstream.slip.hints import UNDOES
from slipstream.slip.outbox import RETURNED_FROM
from slipstream.slip.sealed import NOTHING, SealedEvent, receive_sealed
from slipstream.slip.slip import active, given_up, is_late, settled, with_step
from slipstream.slip.topics import DEAD_LETTERS, ROUTER
from slipstream.spans import is_trace_id


class Came(msgspec.Struct, frozen=True, gc=False):
    """A message as it lies in the log."""

    topic: str
    partition: int
    offset: int
    key: bytes
    data: bytes


class Attempt(msgspec.Struct, frozen=True, gc=False):
    """An attempt that can be made."""

    came: Came
    event: SealedEvent
    step: RoutingStep


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """How an attempt ended."""

    status: Status = Status.OK
    payload: msgspec.Raw | None = None
    """None: as it was."""
    notes: str | None = None
    error: StepError | None = None


DONE = Outcome()


RETURNED = "returned"


class Sent(msgspec.Struct, frozen=True, gc=False):
    """A message that is sent for one that came."""

    came: Came
    kind: str
    """What the step has come to, or `returned` for what goes back as it came."""
    data: bytes
    key: bytes
    attributes: dict[str, str]
    topic: str = ROUTER
    attempt: Attempt | None = None
    """Whose outcome it is."""


def judge(came: Came, step_id: str, now: dt.datetime) -> Attempt | Sent:
    """Whether there is anything to do about it; if not, what is to be sent."""
    try:
        event = receive_sealed(came.data)
    except Malformed:
        return returned(came)
    step = active(event)
    if step is None or step.status is not Status.PENDING or is_late(event, now):
        return returned(came)  # it is done, or its time is over
    attempt = Attempt(came, event, step)
    if step.id != step_id or UNDOES in step.attributes:
        reason = f"it was sent to {came.topic}, where {step_id} is done: mend nextTopic, or the worker"
        return failed_for_good(attempt, StepError("misrouted", reason), now)
    return attempt


def returned(came: Came) -> Sent:
    """As it came, whatever it is: the router knows what is to be done about it."""
    attributes = {RETURNED_FROM: came.topic}
    if came.key and came.key.isascii():
        attributes["correlationId"] = came.key.decode()
    return Sent(came, RETURNED, came.data, came.key, attributes)


def answer(attempt: Attempt, outcome: Outcome, began: dt.datetime, ended: dt.datetime) -> Sent:
    """The message as the attempt leaves it. An error is only reported: whether there is another attempt, or a dead
    letter, is the router's to say, by the rules of the slip."""
    step = settled(attempt.step, outcome.status, ended, outcome.error, began=began)
    if outcome.notes is not None:
        step = replace(step, notes=outcome.notes)
    event = with_step(attempt.event, step)
    if outcome.payload is not None:
        event = replace(event, payload=outcome.payload)
    return _sent(attempt, event, step)


def failed_for_good(attempt: Attempt, error: StepError, now: dt.datetime, *, bare: bool = False) -> Sent:
    """With the payload that came, or where that cannot be sent without any."""
    step = replace(attempt.step, started_at=now, attempt=attempt.step.attempt or 0)
    step = given_up(step, now, error)
    event = with_step(attempt.event, step)
    return _sent(attempt, replace(event, payload=NOTHING) if bare else event, step)


def buried(came: Came, error: StepError, now: dt.datetime) -> Sent:
    """A dead letter without its contents, of what can neither be followed nor sent back."""
    letter = shortened(undecoded(came.topic, came.data, error, now))
    return Sent(came, RETURNED, encode_dead_letter(letter), b"", {"code": error.code}, DEAD_LETTERS)


def _sent(attempt: Attempt, event: Event, step: RoutingStep) -> Sent:
    envelope = event.envelope
    attributes = {"correlationId": envelope.correlation_id, "stepId": step.id}
    if (traceparent := _traceparent(envelope)) is not None:
        attributes["traceparent"] = traceparent
    key = envelope.correlation_id.encode()
    return Sent(attempt.came, step.status.value, encode(event), key, attributes, attempt=attempt)


def _traceparent(envelope: Envelope) -> str | None:
    trace_id = envelope.trace_id
    if trace_id is None or not is_trace_id(trace_id):
        return None
    # A name in a trace, and no secret: to ask the kernel for each took as long as to encode the event.
    return f"00-{trace_id}-{random.getrandbits(64) or 1:016x}-01"
