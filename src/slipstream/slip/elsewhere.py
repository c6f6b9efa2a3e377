"""Steps that are done by services which know the slip and not our store: the router writes down and tells for them what
a worker of ours does by itself, so that their messages can be seen, timed out, undone and run again like all others.
"""

from __future__ import annotations

from msgspec.structs import replace

from slipstream.bus import Message
from slipstream.slip import clock, hints
from slipstream.slip.event import Event, Malformed, RoutingStep, Status, StepError
from slipstream.slip.identity import identity
from slipstream.slip.kit import Kit
from slipstream.slip.outbox import RETURNED_FROM
from slipstream.slip.planning import PLANNED
from slipstream.slip.retries import Retries
from slipstream.slip.slip import ROUTER as ROUTER_STEP
from slipstream.slip.slip import (
    active,
    find,
    given_up,
    last_done,
    may_retry,
    next_attempt,
    settled,
    unexplained,
    with_step,
)
from slipstream.slip.topics import ROUTER


def comes_from_elsewhere(message: Message) -> bool:
    """Our workers say which outcome it is that they have written down."""
    return message.topic == ROUTER and "outcome" not in message.attributes


async def check(event: Event, message: Message, kit: Kit) -> None:
    """Raises Malformed where it is no answer: its step is still to be done, or some that were planned are gone."""
    planned: Event | None
    if last_done(event) is None:
        # What begins here, with a slip of its own or as a branch, has no plan yet: this is it.
        planned = await kit.ledger.settle(event, ROUTER_STEP, PLANNED)
    else:
        planned = await kit.ledger.outcome(event, ROUTER_STEP, PLANNED)
    if planned is not None:
        there = {step.id for step in event.envelope.routing_slip}
        gone = [step.id for step in planned.envelope.routing_slip if step.id not in there]
        if gone:
            raise Malformed(f"its slip lacks what was planned: {', '.join(gone)}", event)
    step = active(event)
    is_returned = RETURNED_FROM in message.attributes  # by a worker of ours, as it came
    if not is_returned and step is not None and step.status is Status.PENDING and step.started_at is not None:
        raise Malformed(f"{step.id} is still PENDING: set its status to what it has come to", event)


async def note(event: Event, kit: Kit) -> Event:
    """Returns what counts: the first to come with an outcome is right, here as well."""
    step = last_done(event)
    if step is None:
        return event
    kept = await kit.ledger.settle(with_step(event, _counted(step, kit)), step.id, step.attempt or 0)
    ended = find(kept, step.id)
    assert ended is not None
    for told in kit.reporter.tell_outcome(kept, step, ended):
        await told
    return kept


def _counted(step: RoutingStep, kit: Kit) -> RoutingStep:
    """What a service reports is no state of the step yet: an error may mean another attempt, or that it is skipped."""
    now, settings = clock.now(), kit.settings
    if step.status is not Status.ERROR:
        # It may have left there what it was sent with: the error of the attempt before, which was to be retried.
        is_old = step.status is Status.OK or (step.error is not None and step.error.retryable is True)
        error = None if is_old else step.error
        return settled(replace(step, status=Status.PENDING), step.status, step.ended_at or now, error)
    error = step.error or unexplained(step)
    if may_retry(replace(step, error=error), settings.max_attempts):
        retries = Retries(settings.retry_base_ms, settings.retry_longest_ms)
        return next_attempt(replace(step, error=error), clock.now_ms() + retries.pause_ms(step.attempt or 0))
    return given_up(replace(step, status=Status.PENDING), step.ended_at or now, error)


async def garbled(known: Event, message: Message, malformed: Malformed, kit: Kit) -> Event:
    """A message that was under way came back as something that nobody can follow: whoever had it failed at his step.
    Returns the message as it goes on from there."""
    step = active(known)
    if step is None or step.status is not Status.PENDING or _is_not_at(step, known, malformed.event):
        return known
    at = f"{step.id}:{step.attempt or 0}".encode()
    name = f"garbled:{identity(message.topic, message.id)}"
    if await kit.ledger.claim(known.envelope.correlation_id, name, at) != at:
        return known  # it was here before, and the message has moved on since
    now = clock.now()
    begun = replace(step, started_at=step.started_at or now, attempt=step.attempt or 0)
    error = StepError("malformed", f"what came back from {step.id}: {malformed}", retryable=False)
    return await note(with_step(known, given_up(begun, now, error)), kit)


def _is_not_at(step: RoutingStep, known: Event, came: Event | None) -> bool:
    """It is of a step that is over, or nobody was sent anything to garble."""
    if hints.WAIT in step.attributes or hints.BRANCHES in step.attributes:
        return True
    if came is None or find(came, step.id) is None:
        return False  # it does not say where it is from, and here it was expected
    begun = [one.id for one in came.envelope.routing_slip if one.started_at is not None]
    before = find(known, begun[-1]) if begun else None
    return before is not None and before.status is not Status.PENDING
