"""Messages on their way to a step."""

from __future__ import annotations

import datetime as dt
from typing import Any

from slipstream.pipeline.steps.attempt import Attempt, Came, judge
from slipstream.slip.event import Envelope, Event, RoutingStep, Status, encode

NOW = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
TOPIC = "internal.embed.v1"


def event(number: int = 0, payload: Any = None, **step: Any) -> Event:
    """The second of three steps is to be done."""
    embed = RoutingStep("embed", Status.PENDING, **{"attempt": 0, "max_attempts": 3, "started_at": NOW, **step})
    slip = (
        RoutingStep("fetch", Status.OK, attempt=0, started_at=NOW, ended_at=NOW),
        embed,
        RoutingStep("store", Status.PENDING),
    )
    given = {"n": number} if payload is None else payload
    return Event(Envelope("1", "test", f"c-{number}", routing_slip=slip), "order.v1", given)


def came(data: Event | bytes, offset: int = 0) -> Came:
    return Came(TOPIC, 0, offset, b"key", encode(data) if isinstance(data, Event) else data)


def attempt(number: int = 0, payload: Any = None) -> Attempt:
    judged = judge(came(event(number, payload), number), "embed", NOW)
    assert isinstance(judged, Attempt)
    return judged
