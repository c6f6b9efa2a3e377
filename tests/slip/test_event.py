"""What travels: strict to read, short to write."""

from __future__ import annotations

import datetime as dt
import json

import pytest
from hypothesis import given, settings

from slipstream.slip.event import Envelope, Event, Malformed, RoutingStep, Status, StepError, decode, encode
from tests.slip.events import events

NOON = dt.datetime(2030, 1, 31, 12, tzinfo=dt.UTC)


def test_the_wire_has_camel_case_and_no_defaults_but_always_the_status() -> None:
    full = RoutingStep(
        "retrieval",
        Status.ERROR,
        v="2",
        attempt=0,
        max_attempts=5,
        next_topic="internal.retrieval.v1",
        attributes={"priority": "high"},
        started_at=NOON,
        ended_at=NOON,
        error=StepError("E1", "no memory", retryable=False),
        notes="{}",
    )
    envelope = Envelope(
        *("1", "ingress.twitch", "c-123", "t-abc", "replies", NOON), (full, RoutingStep("egress", Status.PENDING))
    )
    assert json.loads(encode(Event(envelope, "chat.message.v1", {"userId": "u-77"}))) == {
        "envelope": {
            "v": "1",
            "source": "ingress.twitch",
            "correlationId": "c-123",
            "traceId": "t-abc",
            "replyTo": "replies",
            "timeoutAt": "2030-01-31T12:00:00Z",
            "routingSlip": [
                {
                    "id": "retrieval",
                    "status": "ERROR",
                    "v": "2",
                    "attempt": 0,
                    "maxAttempts": 5,
                    "nextTopic": "internal.retrieval.v1",
                    "attributes": {"priority": "high"},
                    "startedAt": "2030-01-31T12:00:00Z",
                    "endedAt": "2030-01-31T12:00:00Z",
                    "error": {"code": "E1", "message": "no memory", "retryable": False},
                    "notes": "{}",
                },
                {"id": "egress", "status": "PENDING"},
            ],
        },
        "type": "chat.message.v1",
        "payload": {"userId": "u-77"},
    }


def test_an_event_without_a_slip_is_short() -> None:
    event = Event(Envelope("1", "ingress.twitch", "c-123"), "chat.message.v1", None)
    assert encode(event) == (
        b'{"envelope":{"v":"1","source":"ingress.twitch","correlationId":"c-123"},'
        b'"type":"chat.message.v1","payload":null}'
    )


@settings(max_examples=50)
@given(events())
def test_what_was_written_is_read_the_same(event: Event) -> None:
    assert decode(encode(event)) == event


def test_a_time_keeps_its_moment_whatever_its_zone() -> None:
    zoned = NOON.astimezone(dt.timezone(dt.timedelta(hours=5, minutes=30)))
    event = Event(Envelope("1", "s", "c", timeout_at=zoned), "t")
    assert decode(encode(event)).envelope.timeout_at == NOON


@pytest.mark.parametrize(
    ("data", "where"),
    [
        (b"", "truncated"),
        (b"[]", "Expected `object`"),
        (b"\xff", "malformed|invalid"),
        (b'{"type":"t"}', "missing required field `envelope`"),
        (b'{"envelope":{"v":"1","source":"s"},"type":"t"}', "missing required field `correlationId`"),
        (
            b'{"envelope":{"v":"1","source":"s","correlationId":"c","trace_id":"x"},"type":"t"}',
            "unknown field `trace_id`",
        ),
        (b'{"envelope":{"v":"2","source":"s","correlationId":"c"},"type":"t"}', r"Invalid enum value '2'"),
        (
            b'{"envelope":{"v":"1","source":"s","correlationId":"c","routingSlip":[{"id":"a"}]},"type":"t"}',
            r"missing required field `status` - at `\$\.envelope\.routingSlip\[0\]`",
        ),
        (b'{"envelope":' + b'{"a":' * 100_000, "no event"),
    ],
)
def test_what_is_no_event_is_refused_with_the_place(data: bytes, where: str) -> None:
    with pytest.raises(Malformed, match=where):
        decode(data)
