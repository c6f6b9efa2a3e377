"""The rules by which a slip advances: pure functions from an event to the next, without a bus, a store or a clock.

A slip is a list of steps. Those that are done (OK, SKIP) lie behind, the first that is not is where the message is, and
what follows lies ahead. When a step has failed for good the rest is skipped, and what must be undone is appended as
steps of its own (`undo:charge`), in reverse: the slip shows all that has happened, whatever happens.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from slipstream.slip import hints
from slipstream.slip.event import Event, RoutingStep, Status, StepError
from slipstream.slip.slip import (
    DONE,
    TERMINAL,
    UNDO_ID,
    is_late,
    is_undoing,
    run_of,
    topic_of,
    unexplained,
    with_slip,
)

MESSAGE_TIMEOUT = "message_timeout"
"""The code of what became of a message whose `timeoutAt` has passed."""
CANCELLED = "cancelled"
"""That of one that somebody has ended."""

Holds: TypeAlias = Callable[[str, Event], bool]
"""Whether a condition, as JSON text, holds for an event."""


# What to do next


class Send(msgspec.Struct, frozen=True, gc=False):
    """To the topic of the step, for a worker."""

    event: Event
    step: RoutingStep
    topic: str
    skipped: tuple[RoutingStep, ...] = ()


class Fork(msgspec.Struct, frozen=True, gc=False):
    """The step's branches are to be run, and the message waits for them."""

    event: Event
    step: RoutingStep
    skipped: tuple[RoutingStep, ...] = ()


class Wait(msgspec.Struct, frozen=True, gc=False):
    """For a decision, or a word from outside."""

    event: Event
    step: RoutingStep
    skipped: tuple[RoutingStep, ...] = ()


class Complete(msgspec.Struct, frozen=True, gc=False):
    """All steps are done."""

    event: Event
    skipped: tuple[RoutingStep, ...] = ()


class Fail(msgspec.Struct, frozen=True, gc=False):
    """For good. Where the slip has steps that undo, those are over."""

    event: Event
    step: RoutingStep
    error: StepError
    skipped: tuple[RoutingStep, ...] = ()


Decision: TypeAlias = Send | Fork | Wait | Complete | Fail


class Rules(msgspec.Struct, frozen=True, gc=False):
    """What a slip does not say itself."""

    holds: Holds
    max_attempts: int = 3


def advance(event: Event, now: dt.datetime, rules: Rules) -> Decision:
    """What is to be done with a message, by its slip alone."""
    steps = list(event.envelope.routing_slip)
    if is_undoing(steps):
        return _advance_undoing(event, steps, now, rules)
    if is_late(event, now):
        return abort(event, now)
    skipped: list[RoutingStep] = []
    for index, step in enumerate(steps):
        match step.status:
            case Status.OK | Status.SKIP:
                continue
            case Status.ERROR:
                return _fail(event, steps, index, step.error or unexplained(step), now, skipped)
            case Status.PENDING:
                unless = step.attributes.get(hints.UNLESS)
                if unless is not None and rules.holds(unless, with_slip(event, steps)):
                    steps[index] = replace(step, status=Status.SKIP, ended_at=now, notes="its unless holds")
                    skipped.append(steps[index])
                    continue
        return _begin(event, steps, index, now, rules, skipped)
    return Complete(with_slip(event, steps), tuple(skipped))


def _begin(
    event: Event,
    steps: list[RoutingStep],
    index: int,
    now: dt.datetime,
    rules: Rules,
    skipped: Sequence[RoutingStep] = (),
) -> Decision:
    """`startedAt` is when it was sent here, until a worker says when the work began."""
    step = steps[index]
    step = steps[index] = replace(
        step,
        started_at=now,
        attempt=step.attempt or 0,
        max_attempts=step.max_attempts or rules.max_attempts,
    )
    event = with_slip(event, steps)
    if hints.BRANCHES in step.attributes:
        return Fork(event, step, tuple(skipped))
    if hints.WAIT in step.attributes:
        return Wait(event, step, tuple(skipped))
    return Send(event, step, topic_of(step), tuple(skipped))


# Its end


def abort(event: Event, now: dt.datetime, error: StepError | None = None) -> Complete | Fail:
    """What remains is skipped; the first of it says why: because of its time, unless there is another reason. A message
    that is complete is no longer late."""
    steps = list(event.envelope.routing_slip)
    index = next((index for index, step in enumerate(steps) if step.status not in DONE), None)
    if index is None:
        return Complete(event)
    step = steps[index]
    if step.status is Status.ERROR:
        return _fail(event, steps, index, step.error or unexplained(step), now, [])
    if error is None:
        error = StepError(MESSAGE_TIMEOUT, f"timeoutAt has passed before {step.id} was done", retryable=False)
    steps[index] = replace(step, status=Status.SKIP, ended_at=now, error=error)
    return _fail(event, steps, index, error, now, [steps[index]])


def _fail(
    event: Event,
    steps: list[RoutingStep],
    index: int,
    error: StepError,
    now: dt.datetime,
    skipped: Sequence[RoutingStep],
) -> Fail:
    skipped = list(skipped)
    steps[index] = replace(steps[index], error=error)
    for later, step in enumerate(steps[index + 1 :], index + 1):
        if step.status is Status.PENDING:
            steps[later] = replace(step, status=Status.SKIP, ended_at=now, notes=f"{steps[index].id} failed")
            skipped.append(steps[later])
    return Fail(with_slip(event, steps), steps[index], error, tuple(skipped))


# Undoing


def with_undoing(event: Event, besides: Collection[str] = ()) -> Event:
    """With a step for everything that has left a record to undo it by, the last first; not for those that are undone
    already."""
    undoing: list[RoutingStep] = []
    run = run_of(event)
    for step in reversed(event.envelope.routing_slip):
        for step_id, record in _records(step):
            if step_id in besides:
                continue
            attributes = {hints.UNDO: record, hints.UNDOES: step_id}
            undo_id = UNDO_ID + step_id + (f"#{run}" if run else "")  # what was undone in an earlier run was another
            undoing.append(RoutingStep(undo_id, Status.PENDING, attributes=attributes, max_attempts=step.max_attempts))
    return with_slip(event, [*event.envelope.routing_slip, *undoing]) if undoing else event


def undo_records(steps: Iterable[RoutingStep]) -> list[tuple[str, str]]:
    """Of the steps that are done, by step, in the order in which they were done."""
    return [record for step in steps for record in reversed(list(_records(step)))]


def _records(step: RoutingStep) -> Iterable[tuple[str, str]]:
    """The last first. A step that has failed may have done something before: what it has left is used, too."""
    if hints.UNDO_BRANCHES in step.attributes:
        yield from reversed([(name, record) for name, record in json.loads(step.attributes[hints.UNDO_BRANCHES])])
    elif step.status is not Status.PENDING and hints.UNDO in step.attributes and hints.UNDOES not in step.attributes:
        yield step.id, step.attributes[hints.UNDO]


def _advance_undoing(event: Event, steps: list[RoutingStep], now: dt.datetime, rules: Rules) -> Decision:
    """One that cannot be undone does not keep the others from it."""
    for index, step in enumerate(steps):
        if hints.UNDOES not in step.attributes:
            continue
        if step.status is Status.PENDING:
            return _begin(event, steps, index, now, rules)
    step, error = failure(steps)
    return Fail(event, step, error)


def failure(steps: Iterable[RoutingStep]) -> tuple[RoutingStep, StepError]:
    """The step that a failed message failed at, and how."""
    forward = [step for step in steps if hints.UNDOES not in step.attributes]
    for step in forward:
        given_up = step.error is not None and step.error.code in {MESSAGE_TIMEOUT, CANCELLED}
        if step.status is Status.ERROR or given_up:
            return step, step.error or unexplained(step)
    last = next((step for step in reversed(forward) if step.status in TERMINAL), forward[0])
    return last, StepError("unknown", "no step of the slip has failed", retryable=False)
