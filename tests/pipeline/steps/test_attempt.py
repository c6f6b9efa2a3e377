"""One message at a step: whether there is anything to do, and what is sent for it."""

from __future__ import annotations

import datetime as dt

import msgspec
import pytest

from slipstream.pipeline.steps.attempt import RETURNED, Attempt, Outcome, Sent, answer, buried, failed_for_good, judge
from slipstream.slip.event import Event, Status, StepError, encode
from slipstream.slip.incoming import receive
from slipstream.slip.slip import find
from slipstream.slip.topics import DEAD_LETTERS, ROUTER
from tests.pipeline.steps.events import NOW, TOPIC, attempt, came, event

LATER = NOW + dt.timedelta(seconds=5)


def embed(sent: Sent) -> tuple[object, ...]:
    step = find(receive(sent.data), "embed")
    assert step is not None
    return step.status, step.error and step.error.code, step.started_at, step.ended_at, step.notes


def test_an_answer_has_times_status_and_notes_and_belongs_to_its_message() -> None:
    sent = answer(attempt(7), Outcome(notes="well"), NOW, LATER)
    assert embed(sent) == (Status.OK, None, NOW, LATER, "well")
    assert receive(sent.data).payload == {"n": 7}
    assert (sent.topic, sent.key, sent.kind) == (ROUTER, b"c-7", "OK")
    assert sent.attributes == {"correlationId": "c-7", "stepId": "embed"}


def test_an_error_is_reported_and_the_router_says_what_follows() -> None:
    sent = answer(attempt(), Outcome(Status.ERROR, error=StepError("boom", "why", retryable=True)), NOW, LATER)
    step = find(receive(sent.data), "embed")
    assert step is not None
    assert (step.status, step.error) == (Status.ERROR, StepError("boom", "why", retryable=True))


def test_the_trace_goes_on() -> None:
    trace_id = "0af7651916cd43dd8448eb211c80319c"
    found = event()
    traced = msgspec.structs.replace(found, envelope=msgspec.structs.replace(found.envelope, trace_id=trace_id))
    judged = judge(came(traced), "embed", NOW)
    assert isinstance(judged, Attempt)
    version, trace, parent, flags = answer(judged, Outcome(), NOW, NOW).attributes["traceparent"].split("-")
    assert (version, trace, len(parent), flags) == ("00", trace_id, 16, "01")


def late(found: Event) -> Event:
    return msgspec.structs.replace(found, envelope=msgspec.structs.replace(found.envelope, timeout_at=NOW))


@pytest.mark.parametrize(
    "data",
    [b"no event", encode(event()).replace(b'"PENDING"', b'"OK"'), encode(late(event()))],
    ids=["malformed", "done", "late"],
)
def test_what_cannot_be_worked_at_goes_back_as_it_came(data: bytes) -> None:
    sent = judge(came(data), "embed", NOW)
    assert isinstance(sent, Sent)
    assert (sent.kind, sent.data, sent.topic) == (RETURNED, data, ROUTER)
    assert sent.attributes == {"returnedFrom": TOPIC, "correlationId": "key"}


def test_what_was_sent_to_the_wrong_step_has_failed_there_for_good() -> None:
    sent = judge(came(event()), "rank", NOW)
    assert isinstance(sent, Sent)
    assert embed(sent)[:2] == (Status.ERROR, "misrouted")


def test_a_failure_may_be_sent_without_the_payload() -> None:
    error = StepError("unsendable", "too large")
    whole, bare = failed_for_good(attempt(3), error, NOW), failed_for_good(attempt(3), error, NOW, bare=True)
    assert receive(whole.data).payload == {"n": 3}
    assert receive(bare.data).payload is None
    assert embed(bare)[:2] == (Status.ERROR, "unsendable")


def test_what_is_no_event_and_too_large_is_a_dead_letter_that_says_where_it_lies() -> None:
    sent = buried(came(b"x" * 10_000), StepError("unsendable", "too large"), NOW)
    assert (sent.topic, len(sent.data) < 2_000) == (DEAD_LETTERS, True)
    assert TOPIC.encode() in sent.data
