"""The state machine of a slip by itself, with workers that do whatever chance says: the laws that no slip may break."""

from __future__ import annotations

import datetime as dt
import json

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from slipstream.slip import Envelope, Event, RoutingStep, Status, StepError, hints
from slipstream.slip.advance import Complete, Decision, Fail, Fork, Rules, Send, Wait, advance, with_undoing
from slipstream.slip.slip import DONE, TERMINAL, given_up, is_undoing, may_retry, next_attempt, with_step

START = dt.datetime(2030, 1, 31, 12, tzinfo=dt.UTC)
MAX_ATTEMPTS = 3
RULES = Rules(holds=lambda condition, event: condition == "true", max_attempts=MAX_ATTEMPTS)

HINTS = st.fixed_dictionaries(
    {},
    optional={
        hints.OPTIONAL: st.sampled_from(["true", "false"]),
        hints.UNLESS: st.sampled_from(["true", "false"]),
        hints.WAIT: st.just("approval"),
        hints.BRANCHES: st.just("{}"),
    },
)
STEPS = st.lists(st.tuples(HINTS, st.none() | st.integers(1, 4)), max_size=5)

OUTCOMES = st.sampled_from(["ok", "leaves a record", "skip", "error", "silent error", "gives up", "tries again"])
"""What a worker makes of a step."""


def planned(steps: list[tuple[dict[str, str], int | None]], timeout_s: int | None) -> Event:
    slip = [
        RoutingStep(f"s{number}", Status.PENDING, attributes=attributes, max_attempts=most)
        for number, (attributes, most) in enumerate(steps)
    ]
    timeout_at = None if timeout_s is None else START + dt.timedelta(seconds=timeout_s)
    router = RoutingStep("router", Status.OK, started_at=START, ended_at=START)
    return Event(Envelope("1", "test", "c-1", timeout_at=timeout_at, routing_slip=(router, *slip)), "order.v1", {})


def worked(event: Event, step: RoutingStep, outcome: str, now: dt.datetime) -> Event:
    match outcome:
        case "ok":
            after = replace(step, status=Status.OK)
        case "leaves a record":
            record = {} if hints.UNDOES in step.attributes else {hints.UNDO: json.dumps(step.id)}
            after = replace(step, status=Status.OK, attributes=step.attributes | record)
        case "skip":
            after = replace(step, status=Status.SKIP)
        case "error":
            after = replace(step, status=Status.ERROR, error=StepError("broken", retryable=False))
        case "silent error":
            after = replace(step, status=Status.ERROR, error=None)
        case "tries again" if may_retry(busy := replace(step, error=StepError("busy", retryable=True)), MAX_ATTEMPTS):
            return with_step(event, next_attempt(busy, not_before_ms=None))
        case _:
            return with_step(event, given_up(step, now, StepError("broken")))
    return with_step(event, replace(after, ended_at=now))


def check_begun(before: Event, decision: Send | Fork | Wait) -> None:
    """What a step that is begun must be."""
    steps = decision.event.envelope.routing_slip
    index = next(index for index, step in enumerate(steps) if step.id == decision.step.id)
    step = steps[index]
    assert step == decision.step
    assert step.status is Status.PENDING
    assert step.started_at is not None
    assert step.attempt is not None
    assert step.max_attempts is not None
    assert step.attempt < step.max_attempts
    if hints.UNDOES in step.attributes:
        # Those that are undone already may have failed at it.
        behind = [one for one in steps[:index] if hints.UNDOES in one.attributes]
        assert all(one.status in TERMINAL for one in behind)
    else:
        assert all(one.status in DONE for one in steps[:index]), "nothing is begun after what is open or failed"
    begun = [one for one in steps if one.status is Status.PENDING and one.started_at is not None]
    assert begun == [step], "one step at a time"


def check_kept(before: Event, after: Event) -> None:
    """What is over stays over, and no step is lost."""
    was, now = before.envelope.routing_slip, after.envelope.routing_slip
    assert [step.id for step in now] == [step.id for step in was]
    for one, other in zip(was, now, strict=True):
        if one.status in DONE or (one.status is Status.ERROR and one.error is not None):
            assert other == one
        elif one.status is Status.ERROR:
            assert replace(other, error=None) == one, "it may be said that nobody said why"


def check_undoing(event: Event) -> None:
    """Only of what was done and has left a record, and the last first."""
    steps = event.envelope.routing_slip
    undone = [step.attributes[hints.UNDOES] for step in steps if hints.UNDOES in step.attributes]
    done = [step.id for step in steps if step.status is Status.OK and hints.UNDO in step.attributes]
    assert undone == [one for one in reversed(done) if not one.startswith("undo:")]
    first = next((index for index, step in enumerate(steps) if hints.UNDOES in step.attributes), len(steps))
    assert all(hints.UNDOES in step.attributes for step in steps[first:]), "they are at the end"


def check_ended(decision: Complete | Fail) -> None:
    steps = decision.event.envelope.routing_slip
    assert all(step.status in TERMINAL for step in steps), "nothing is left open"
    forward = [step for step in steps if hints.UNDOES not in step.attributes]
    if isinstance(decision, Complete):
        assert all(step.status in DONE for step in steps)
        assert forward == list(steps), "what was completed is not undone"
        return
    failed = next(index for index, step in enumerate(forward) if step.id == decision.step.id)
    assert all(step.status in DONE for step in forward[:failed])
    assert all(step.status is Status.SKIP for step in forward[failed + 1 :]), "what remained is skipped"
    assert decision.error == forward[failed].error


@given(STEPS, st.none() | st.integers(0, 20), st.lists(OUTCOMES, min_size=1, max_size=30))
def test_a_slip_obeys_the_laws_until_its_one_end(
    steps: list[tuple[dict[str, str], int | None]], timeout_s: int | None, outcomes: list[str]
) -> None:
    event = planned(steps, timeout_s)
    attempts_most = sum(most or MAX_ATTEMPTS for _, most in steps)
    for turn in range(2 * attempts_most + 2):
        now = START + dt.timedelta(seconds=turn)
        decision: Decision = advance(event, now, RULES)
        assert decision == advance(event, now, RULES), "the same is decided of the same"
        check_kept(event, decision.event)
        if isinstance(decision, Send | Fork | Wait):
            check_begun(event, decision)
            event = worked(decision.event, decision.step, outcomes[turn % len(outcomes)], now)
            continue
        if isinstance(decision, Fail) and not is_undoing(decision.event.envelope.routing_slip):
            undoing = with_undoing(decision.event)
            check_undoing(undoing)
            if undoing != decision.event:
                event = undoing
                continue
        check_ended(decision)
        if isinstance(decision, Fail) and decision.error.code == "message_timeout":
            return  # a slip of which all is skipped says nothing of its time: that it is over is in the store
        again = advance(decision.event, now + dt.timedelta(days=1), RULES)
        assert type(again) is type(decision), "an end stays what it is"
        assert again.event == decision.event
        return
    raise AssertionError("it never ended")


@given(STEPS, st.integers(-5, 0))
def test_what_is_late_is_never_begun(steps: list[tuple[dict[str, str], int | None]], timeout_s: int) -> None:
    decision = advance(planned(steps, timeout_s), START, RULES)
    if not steps:
        assert isinstance(decision, Complete)
        return
    assert isinstance(decision, Fail)
    assert decision.error.code == "message_timeout"
    assert [step.status for step in decision.event.envelope.routing_slip[1:]] == [Status.SKIP] * len(steps)
