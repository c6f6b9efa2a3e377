"""Spans of OpenTelemetry, joined across services by the `traceparent` of messages. Without it installed, nothing."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

_trace: ModuleType | None
try:
    from opentelemetry import trace as _trace
except ImportError:  # it is an extra
    _trace = None

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")


def trace_id(traceparent: str) -> str | None:
    match = _TRACEPARENT.fullmatch(traceparent)
    return match[1] if match is not None else None


@contextlib.contextmanager
def span(name: str, traceparent: str, attributes: Mapping[str, str | int]) -> Iterator[Any]:
    """What is published within is its child. An exception is recorded, and passes."""
    if _trace is None or isinstance(_trace.get_tracer_provider(), _trace.ProxyTracerProvider):
        yield None  # nobody looks at spans: half of what a hop costs would be for them
        return
    tracer = _trace.get_tracer("slipstream.slip")
    kind = _trace.SpanKind.CONSUMER
    with tracer.start_as_current_span(name, context=_context(traceparent), kind=kind, attributes=attributes) as active:
        yield active


def mark_failed(active: Any, reason: str) -> None:
    if _trace is not None and active is not None:
        active.set_status(_trace.StatusCode.ERROR, reason)


def _context(traceparent: str) -> Any:
    assert _trace is not None
    match = _TRACEPARENT.fullmatch(traceparent)
    if match is None:
        return None
    context = _trace.SpanContext(
        int(match[1], 16), int(match[2], 16), is_remote=True, trace_flags=_trace.TraceFlags(int(match[3], 16))
    )
    return _trace.set_span_in_context(_trace.NonRecordingSpan(context))
