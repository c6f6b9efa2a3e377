"""The schema files and the decoder say the same about what is an event."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import jsonschema
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scripts import generate_docs
from slipstream.slip.event import Envelope, Event, Malformed, RoutingStep, Status, decode, encode
from slipstream.slip.schema import DIRECTORY, schema_text, schemas
from tests.slip.events import STEPS, events


def validator(name: str) -> jsonschema.Draft202012Validator:
    """Of the file, not of what it is made from: it is the file that others use."""
    schema = json.loads((DIRECTORY / f"{name}.json").read_text())
    checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
    assert "date-time" in checker.checkers, "without rfc3339-validator every text would be a time"
    return jsonschema.Draft202012Validator(schema, format_checker=checker)


INGRESS, EVENT, ENVELOPE, STEP = map(validator, ("ingress.v1", "event.v1", "envelope.v1", "step.v1"))

INGRESS_EXAMPLE = {
    "envelope": {"v": "1", "source": "ingress.twitch", "correlationId": "c-123", "traceId": "t-abc"},
    "type": "chat.message.v1",
    "payload": {"channel": "#bitbrat", "text": "!hello", "userId": "u-77"},
}
SLIP_EXAMPLE = [
    {"id": "router", "status": "OK", "startedAt": "2030-01-31T12:00:00Z", "endedAt": "2030-01-31T12:00:00.5+01:00"},
    {"id": "retrieval", "status": "PENDING", "nextTopic": "internal.retrieval.v1"},
    {"id": "llm-bot", "status": "PENDING", "nextTopic": "internal.bot.requests.v1"},
]


def planned() -> dict[str, Any]:
    """A copy that a test may spoil."""
    found: dict[str, Any] = json.loads(json.dumps(INGRESS_EXAMPLE))
    found["envelope"]["routingSlip"] = json.loads(json.dumps(SLIP_EXAMPLE))
    return found


def test_the_files_are_up_to_date() -> None:
    there = {path.name: path.read_text() for path in DIRECTORY.iterdir()}
    wanted = {f"{name}.json": schema_text(schema) for name, schema in schemas().items()}
    assert there == wanted, "run: .venv/bin/python -m scripts.generate_docs"
    assert {DIRECTORY / name: text for name, text in wanted.items()}.items() <= generate_docs.generated().items()


@pytest.mark.parametrize("name", schemas())
def test_a_schema_is_one_and_names_no_host(name: str) -> None:
    schema = schemas()[name]
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$id"] == f"urn:slipstream:schema:{name}"
    assert schema_text(schema).count("//") == 1, "the name of the dialect has a host, and nothing else"


def test_the_example_is_valid_before_and_after_it_was_planned() -> None:
    INGRESS.validate(INGRESS_EXAMPLE)
    INGRESS.validate(planned())
    EVENT.validate(planned())
    ENVELOPE.validate(planned()["envelope"])
    for step in SLIP_EXAMPLE:
        STEP.validate(step)
    assert decode(json.dumps(planned()).encode()).envelope.routing_slip[0].status is Status.OK


def test_after_the_router_there_is_a_slip_with_a_step() -> None:
    assert not EVENT.is_valid(INGRESS_EXAMPLE)
    assert not ENVELOPE.is_valid(INGRESS_EXAMPLE["envelope"])
    without = planned()
    without["envelope"]["routingSlip"] = []
    assert not EVENT.is_valid(without)
    assert not ENVELOPE.is_valid(without["envelope"])
    assert INGRESS.is_valid(without)


@settings(max_examples=50)
@given(events())
def test_what_is_sent_before_the_router_is_valid_and_comes_back(event: Event) -> None:
    data = encode(event)
    INGRESS.validate(json.loads(data))
    assert decode(data) == event


@settings(max_examples=50)
@given(events(steps_min=1))
def test_what_is_sent_after_the_router_is_valid_and_comes_back(event: Event) -> None:
    data = encode(event)
    EVENT.validate(json.loads(data))
    ENVELOPE.validate(json.loads(data)["envelope"])
    assert decode(data) == event


@given(STEPS)
def test_a_step_is_valid_alone(step: RoutingStep) -> None:
    STEP.validate(json.loads(msgspec.json.encode(step)))


Spoil = Callable[[dict[str, Any]], object]


def in_step(**fields: object) -> Spoil:
    return lambda event: event["envelope"]["routingSlip"][1].update(fields)


def in_envelope(**fields: object) -> Spoil:
    return lambda event: event["envelope"].update(fields)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda event: event.update(extra=1),
        lambda event: event.pop("envelope"),
        lambda event: event.pop("type"),
        lambda event: event.update(type=""),
        lambda event: event.update(type=None),
        lambda event: event["envelope"].pop("correlationId"),
        lambda event: event["envelope"].pop("source"),
        lambda event: event["envelope"].pop("v"),
        in_envelope(v="2"),
        in_envelope(v=1),
        in_envelope(correlationId=""),
        in_envelope(correlationId=None),
        in_envelope(correlation_id="c"),
        in_envelope(timeoutAt="2030-01-31T12:00:00"),
        in_envelope(timeoutAt="tomorrow"),
        in_envelope(timeoutAt=1),
        in_envelope(routingSlip=None),
        in_envelope(routingSlip={}),
        lambda event: event["envelope"]["routingSlip"][1].pop("id"),
        lambda event: event["envelope"]["routingSlip"][1].pop("status"),
        in_step(id=""),
        in_step(status="DONE"),
        in_step(status="ok"),
        in_step(status=None),
        in_step(attempt=-1),
        in_step(attempt=0.5),
        in_step(attempt="0"),
        in_step(attempt=True),
        in_step(maxAttempts=0),
        in_step(max_attempts=3),
        in_step(attributes={"priority": 1}),
        in_step(attributes=None),
        in_step(startedAt="2030-01-31T12:00:00"),
        in_step(endedAt="2030-13-31T12:00:00Z"),
        in_step(error={}),
        in_step(error="failed"),
        in_step(error={"code": "E", "retryable": "yes"}),
        in_step(error={"code": "E", "extra": 1}),
        in_step(notes={"a": 1}),
        in_step(v=1),
        in_step(v=None),
    ],
)
def test_what_the_decoder_refuses_the_schema_refuses_too(spoil: Spoil) -> None:
    event = planned()
    spoil(event)
    with pytest.raises(Malformed):
        decode(json.dumps(event).encode())
    assert not INGRESS.is_valid(event)
    assert not EVENT.is_valid(event)


@pytest.mark.parametrize(
    "change",
    [
        in_step(error=None),
        in_step(error={"code": "E", "message": None, "retryable": None}),
        in_step(attempt=None, maxAttempts=None, nextTopic=None, startedAt=None, endedAt=None, notes=None),
        in_step(v=""),
        in_envelope(traceId=None, replyTo=None, timeoutAt=None),
        in_envelope(timeoutAt="2030-01-31T12:00:00.123456-08:00"),
        in_envelope(source=""),
        lambda event: event.pop("payload"),
        lambda event: event.update(payload=None),
    ],
)
def test_what_the_decoder_takes_the_schema_takes_too(change: Spoil) -> None:
    event = planned()
    change(event)
    decode(json.dumps(event).encode())
    INGRESS.validate(event)
    EVENT.validate(event)


def test_what_they_see_differently_is_known() -> None:
    """To JSON Schema 1.0 is an integer. The decoder takes times that are written a little carelessly."""
    whole = planned()
    in_step(attempt=1.0)(whole)
    assert EVENT.is_valid(whole)
    with pytest.raises(Malformed):
        decode(json.dumps(whole).encode())
    for time in ("2030-01-31 12:00:00Z", "2030-01-31T12:00:00+0100"):
        careless = planned()
        in_envelope(timeoutAt=time)(careless)
        assert not EVENT.is_valid(careless)
        assert EVENT.is_valid(json.loads(encode(decode(json.dumps(careless).encode())))), (
            "it is sent on as it should be"
        )


ODD_VALUES: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, 0, -1, 1.5, "", "x", "OK", "2030-01-31T12:00:00Z", [], {}, {"code": "E"}]
)


@st.composite
def changed_events(draw: st.DrawFn) -> dict[str, Any]:
    event = planned()
    envelope = event["envelope"]
    part, struct = draw(
        st.sampled_from([(event, Event), (envelope, Envelope), (envelope["routingSlip"][1], RoutingStep)])
    )
    key = draw(st.sampled_from([*struct.__struct_encode_fields__, "extra"]))
    if draw(st.booleans()):
        part[key] = draw(ODD_VALUES)
    else:
        part.pop(key, None)
    return event


@given(changed_events())
def test_both_agree_about_any_other_value_in_any_place(event: dict[str, Any]) -> None:
    try:
        decode(json.dumps(event).encode())
    except Malformed:
        taken = False
    else:
        taken = True
    assert INGRESS.is_valid(event) == taken


def test_every_status_is_in_the_schema_and_no_other() -> None:
    assert schemas()["step.v1"]["$defs"]["Status"]["enum"] == [status.value for status in Status]
