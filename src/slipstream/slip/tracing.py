"""Spans of OpenTelemetry, joined across services by the `traceparent` of messages. Without it installed, nothing."""

from __future__ import annotations

import contextlib
import re
import secrets
import time
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

from slipstream.bus.attributes import HANDLED, TRACEPARENT

_trace: ModuleType | None
try:
    from opentelemetry import trace as _trace
except ImportError:  # it is an extra
    _trace = None

_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})")
_TRACE_ID = re.compile(r"(?!0{32})[0-9a-f]{32}")


def trace_id(traceparent: str) -> str | None:
    match = _TRACEPARENT.fullmatch(traceparent)
    return match[1] if match is not None else None


def is_trace_id(text: str) -> bool:
    """One of W3C's."""
    return _TRACE_ID.fullmatch(text) is not None


def continued(traceparent: str, known: str | None) -> str:
    """Where a message that came with this `traceparent` and `traceId` goes on. Services that send no attributes still
    send the envelope: a `traceId` that is one of W3C's says which trace it is, and `traceparent` where in it."""
    found = trace_id(traceparent)
    if found is None or (known is not None and found != known and _TRACE_ID.fullmatch(known)):
        return _somewhere_in(known if known is not None and _TRACE_ID.fullmatch(known) else secrets.token_hex(16))
    return traceparent


def joined(known: str | None) -> str | None:
    """The `traceparent` of what is sent now for a message of this trace; None where the bus finds it by itself. It does
    not where a message has waited, and goes on because of a timer, or of a word that has a trace of its own."""
    handled = (HANDLED.get() or {}).get(TRACEPARENT, "")
    if known is None or handled[3:35] == known or not _TRACE_ID.fullmatch(known):
        return None
    if _trace is not None and _trace.get_current_span().get_span_context().trace_id == int(known, 16):
        return None
    return _somewhere_in(known)


def _somewhere_in(known: str) -> str:
    return f"00-{known}-{secrets.token_hex(8)}-01"


def span(name: str, traceparent: str, known: str | None, **about: str | int) -> contextlib.AbstractContextManager[Any]:
    """Of a message that came with this `traceparent` and `traceId`. What is published within is its child. An exception
    is recorded, and passes."""
    if _trace is None or not _is_looked_at():
        return _NOTHING
    attributes = {f"slip.{field}": value for field, value in about.items()}
    return _span(name, continued(traceparent, known), attributes)


_NOTHING = contextlib.nullcontext()


@contextlib.contextmanager
def _span(name: str, traceparent: str, attributes: Mapping[str, str | int]) -> Iterator[Any]:
    assert _trace is not None
    tracer = _trace.get_tracer("slipstream.slip")
    kind = _trace.SpanKind.CONSUMER
    with tracer.start_as_current_span(name, context=_context(traceparent), kind=kind, attributes=attributes) as active:
        yield active


_looked_at = (0.0, False)


def _is_looked_at() -> bool:
    """Whether there is anything behind the API. Asked once a second: spans that nobody sees would be half of what a hop
    costs, and to ask takes long, too."""
    global _looked_at  # noqa: PLW0603 - one for the process
    assert _trace is not None
    now = time.monotonic()
    if now >= _looked_at[0]:
        _looked_at = (now + 1, not isinstance(_trace.get_tracer_provider(), _trace.ProxyTracerProvider))
    return _looked_at[1]


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
