"""A slip and its steps: what can be asked of them, and how they change. Pure functions; nothing is changed in place."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from slipstream.slip import hints
from slipstream.slip.errors import InvalidSlip
from slipstream.slip.event import Event, RoutingStep, Status, StepError
from slipstream.slip.topics import default_topic, undo_topic

ROUTER = "router"
UNDO_ID = "undo:"

DONE = frozenset({Status.OK, Status.SKIP})
TERMINAL = frozenset({Status.OK, Status.SKIP, Status.ERROR})


# A step


def topic_of(step: RoutingStep) -> str:
    if step.next_topic:
        return step.next_topic
    undoes = step.attributes.get(hints.UNDOES)
    return undo_topic(undoes) if undoes is not None else default_topic(step.id)


def unexplained(step: RoutingStep) -> StepError:
    """The error of a step that has failed and has none: services elsewhere need not give one."""
    return StepError("unknown", f"{step.id} failed, and nobody said why", retryable=False)


def may_retry(step: RoutingStep, max_attempts: int) -> bool:
    """`attempt` counts from 0: with three attempts the last is number 2."""
    wanted = step.error is not None and step.error.retryable is True
    return wanted and (step.attempt or 0) + 1 < (step.max_attempts or max_attempts)


def next_attempt(step: RoutingStep, not_before_ms: int | None) -> RoutingStep:
    """Its error stays, to be seen until the next attempt has ended."""
    attributes = {name: value for name, value in step.attributes.items() if name != hints.NOT_BEFORE}
    if not_before_ms is not None:
        attributes[hints.NOT_BEFORE] = str(not_before_ms)
    return replace(
        step,
        status=Status.PENDING,
        attempt=(step.attempt or 0) + 1,
        started_at=None,
        ended_at=None,
        attributes=attributes,
    )


def settled(
    step: RoutingStep,
    status: Status,
    now: dt.datetime,
    error: StepError | None = None,
    *,
    began: dt.datetime | None = None,
) -> RoutingStep:
    """A step leaves PENDING, once. `began` is when, where it does not say so yet."""
    if step.status is not Status.PENDING:
        raise InvalidSlip(f"step {step.id} is {step.status}, and stays so")
    attributes = step.attributes
    if hints.NOT_BEFORE in attributes:
        attributes = {name: value for name, value in attributes.items() if name != hints.NOT_BEFORE}
    if began is not None:
        return replace(
            step,
            status=status,
            started_at=began,
            attempt=step.attempt or 0,
            ended_at=now,
            error=error,
            attributes=attributes,
        )
    return replace(step, status=status, ended_at=now, error=error, attributes=attributes)


def given_up(step: RoutingStep, now: dt.datetime, error: StepError) -> RoutingStep:
    """It has failed for good. One that is optional is skipped by that, and its error stays to be seen."""
    status = Status.SKIP if step.attributes.get(hints.OPTIONAL) == "true" else Status.ERROR
    return settled(step, status, now, replace(error, retryable=False))


def active(event: Event) -> RoutingStep | None:
    """Where the message is."""
    steps = event.envelope.routing_slip
    undoing = is_undoing(steps)
    for step in steps:
        status = step.status
        if status is Status.OK or status is Status.SKIP or (undoing and hints.UNDOES not in step.attributes):
            continue
        if status is Status.PENDING or not undoing:
            return step
    return None


def last_done(event: Event) -> RoutingStep | None:
    """The step that the message comes from: the last that was begun, and is not PENDING any more."""
    at = active(event)
    if at is not None and at.status is not Status.PENDING:
        return at
    found: RoutingStep | None = None
    for step in event.envelope.routing_slip:
        if step is at:
            break
        # What was only skipped, by whoever, was never begun.
        if step.started_at is not None and step.id != ROUTER:
            found = step
    return found


def find(event: Event, step_id: str) -> RoutingStep | None:
    for step in event.envelope.routing_slip:
        if step.id == step_id:
            return step
    return None


# A slip


def is_late(event: Event, now: dt.datetime) -> bool:
    timeout_at = event.envelope.timeout_at
    return timeout_at is not None and timeout_at <= now


def is_undoing(steps: Sequence[RoutingStep]) -> bool:
    """What undoes is at the end of a slip, and nothing follows."""
    return bool(steps) and hints.UNDOES in steps[-1].attributes


def plan(event: Event, steps: Iterable[RoutingStep], now: dt.datetime) -> Event:
    """The slip of a message that has none: the router's own step, which is done with this, and those that follow."""
    router = RoutingStep(ROUTER, Status.OK, started_at=now, ended_at=now)
    return with_slip(event, [router, *steps])


def with_slip(event: Event, steps: Iterable[RoutingStep]) -> Event:
    return replace(event, envelope=replace(event.envelope, routing_slip=tuple(steps)))


def with_step(event: Event, step: RoutingStep) -> Event:
    """In place of the one with its id."""
    return with_slip(event, [step if step.id == other.id else other for other in event.envelope.routing_slip])


def skipped_since(before: Event, after: Event) -> list[RoutingStep]:
    """What a planner or a worker has taken off the itinerary in between."""
    ahead = {step.id for step in before.envelope.routing_slip if step.status is Status.PENDING}
    return [step for step in after.envelope.routing_slip if step.status is Status.SKIP and step.id in ahead]


def in_run(event: Event, run: int) -> Event:
    first, *rest = event.envelope.routing_slip
    return with_slip(event, [replace(first, attributes=first.attributes | {hints.RUN: str(run)}), *rest])


def life_of(event: Event) -> str:
    """Names a message in one of its runs: what is known of an attempt in an earlier one stays there."""
    run = run_of(event)
    return f"{event.envelope.correlation_id}#{run}" if run else event.envelope.correlation_id


def run_of(event: Event) -> int:
    """How often the slip was run again."""
    steps = event.envelope.routing_slip
    if not steps or not steps[0].attributes:
        return 0
    return int(steps[0].attributes.get(hints.RUN, "0"))
