"""Events of every kind, for hypothesis."""

from __future__ import annotations

import datetime as dt
from typing import Any

from hypothesis import strategies as st

from slipstream.slip.event import Envelope, Event, RoutingStep, Status, StepError

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NAMED = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
OFFSETS = st.integers(-14 * 60, 14 * 60).map(lambda minutes: dt.timezone(dt.timedelta(minutes=minutes)))
TIMES = st.datetimes(dt.datetime(1970, 1, 2), dt.datetime(9999, 12, 30), timezones=OFFSETS)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


def optional(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


ERRORS = st.builds(StepError, TEXT, optional(TEXT), optional(st.booleans()))
STEPS = st.builds(
    RoutingStep,
    NAMED,
    st.sampled_from(Status),
    v=TEXT,
    attempt=optional(st.integers(0, 2**31)),
    max_attempts=optional(st.integers(1, 2**31)),
    next_topic=optional(TEXT),
    attributes=st.dictionaries(TEXT, TEXT, max_size=3),
    started_at=optional(TIMES),
    ended_at=optional(TIMES),
    error=optional(ERRORS),
    notes=optional(TEXT),
)


def events(*, steps_min: int = 0) -> st.SearchStrategy[Event]:
    envelopes = st.builds(
        Envelope,
        st.just("1"),
        TEXT,
        NAMED,
        trace_id=optional(TEXT),
        reply_to=optional(TEXT),
        timeout_at=optional(TIMES),
        routing_slip=st.lists(STEPS, min_size=steps_min, max_size=4).map(tuple),
    )
    return st.builds(Event, envelopes, NAMED, JSON)
