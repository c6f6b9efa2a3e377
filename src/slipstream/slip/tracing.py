"""The spans of slips. A message is one trace, from where it is submitted to where it is delivered."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from slipstream import spans
from slipstream.bus.attributes import TRACEPARENT
from slipstream.handling import HANDLED
from slipstream.spans import Kind, active_span, is_looked_at, is_trace_id, somewhere_in

TRACER = "slipstream.slip"


def joined(known: str | None) -> str | None:
    """The `traceparent` of what is sent now for a message of this trace; None where the bus finds it by itself. It does
    not where a message has waited, and goes on because of a timer, or of a word that has a trace of its own."""
    handled = (HANDLED.get() or {}).get(TRACEPARENT, "")
    if known is None or handled[3:35] == known or not is_trace_id(known):
        return None
    if active_span()[3:35] == known:
        return None
    return somewhere_in(known)


def span(
    name: str, traceparent: str, known: str | None, about: Mapping[str, str | int]
) -> contextlib.AbstractContextManager[Any]:
    """Of a message that came with this `traceparent` and `traceId`."""
    if not is_looked_at():
        return spans.NOTHING
    return _span(name, spans.continued(traceparent, known), "consumer", about)


def span_within(
    name: str, known: str | None, kind: Kind, about: Mapping[str, str | int]
) -> contextlib.AbstractContextManager[Any]:
    """Of what is done now for a message of this trace."""
    if not is_looked_at():
        return spans.NOTHING
    return _span(name, _here(known), kind, about)


def rejoined(name: str, known: str | None, about: Mapping[str, str | int]) -> contextlib.AbstractContextManager[Any]:
    """Where a message that has waited goes on; no span where one of its trace is active."""
    if not is_looked_at() or joined(known) is None:
        return spans.NOTHING
    return _span(name, _here(known), "consumer", about)


def _here(known: str | None) -> str:
    traceparent = joined(known)
    if traceparent is not None:
        return traceparent
    return "" if active_span() else (HANDLED.get() or {}).get(TRACEPARENT, "")


def _span(
    name: str, traceparent: str, kind: Kind, about: Mapping[str, str | int]
) -> contextlib.AbstractContextManager[Any]:
    attributes = {f"slip.{field}": value for field, value in about.items()}
    return spans.span(name, TRACER, attributes, traceparent=traceparent, kind=kind)
