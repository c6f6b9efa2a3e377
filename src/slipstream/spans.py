"""Spans of OpenTelemetry, joined across services by the `traceparent` of messages and requests.

Without OpenTelemetry installed, or with nothing behind its API, there are none, and they cost next to nothing. Who sets
up what is behind it: `slipstream.telemetry`, or the program.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import time
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any, Literal, TypeAlias

_trace: ModuleType | None
try:
    from opentelemetry import trace as _trace
except ImportError:  # it is an extra
    _trace = None

Kind: TypeAlias = Literal["internal", "server", "client", "producer", "consumer"]
Attribute: TypeAlias = str | int | float | bool

_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})")
_TRACE_ID = re.compile(r"(?!0{32})[0-9a-f]{32}")


# Their names on the wire


def trace_id(traceparent: str) -> str | None:
    match = _TRACEPARENT.fullmatch(traceparent)
    return match[1] if match is not None else None


def is_trace_id(text: str) -> bool:
    """One of W3C's."""
    return _TRACE_ID.fullmatch(text) is not None


def somewhere_in(known: str) -> str:
    """A `traceparent` of this trace, whose span nobody has made."""
    return f"00-{known}-{secrets.token_hex(8)}-01"


def continued(traceparent: str, known: str | None) -> str:
    """Where a message that came with this `traceparent` and trace id goes on. Services that send no attributes may
    still send a trace id: if it is one of W3C's it says which trace it is, and `traceparent` where in it."""
    found = trace_id(traceparent)
    if found is None or (known is not None and found != known and is_trace_id(known)):
        return somewhere_in(known if known is not None and is_trace_id(known) else secrets.token_hex(16))
    return traceparent


# Those of this process


def span(
    name: str,
    tracer: str,
    attributes: Mapping[str, Attribute],
    *,
    traceparent: str = "",
    kind: Kind = "internal",
) -> contextlib.AbstractContextManager[Any]:
    """A child of what `traceparent` says, or else of the active span, or the first of a trace. What is published within
    is its child. An exception is recorded, and passes. Yields None where there are no spans."""
    return _span(name, tracer, attributes, traceparent, kind) if is_looked_at() else NOTHING


NOTHING = contextlib.nullcontext()


@contextlib.contextmanager
def _span(name: str, tracer: str, attributes: Mapping[str, Attribute], traceparent: str, kind: Kind) -> Iterator[Any]:
    assert _trace is not None
    with _trace.get_tracer(tracer).start_as_current_span(
        name, context=_context(traceparent), kind=_trace.SpanKind[kind.upper()], attributes=attributes
    ) as active:
        yield active


def _context(traceparent: str) -> Any:
    assert _trace is not None
    match = _TRACEPARENT.fullmatch(traceparent)
    if match is None:
        return None
    context = _trace.SpanContext(
        int(match[1], 16), int(match[2], 16), is_remote=True, trace_flags=_trace.TraceFlags(int(match[3], 16))
    )
    return _trace.set_span_in_context(_trace.NonRecordingSpan(context))


_looked_at = (0.0, False)


def is_looked_at() -> bool:
    """Whether there is anything behind the API. Asked once a second: spans that nobody sees would be half of what a hop
    costs, and to ask takes long, too."""
    global _looked_at  # noqa: PLW0603 - one for the process
    if _trace is None:
        return False
    now = time.monotonic()
    if now >= _looked_at[0]:
        _looked_at = (now + 1, not isinstance(_trace.get_tracer_provider(), _trace.ProxyTracerProvider))
    return _looked_at[1]


def look_again() -> None:
    """Somebody has put something behind the API, or taken it away."""
    global _looked_at  # noqa: PLW0603
    _looked_at = (0.0, False)


def active_span() -> str:
    """The `traceparent` of what is done now, "" where there is no span. Also of programs that trace by themselves."""
    if _trace is None:
        return ""
    context = _trace.get_current_span().get_span_context()
    if not context.is_valid:
        return ""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def mark_failed(active: Any, reason: str) -> None:
    if _trace is not None and active is not None:
        active.set_status(_trace.StatusCode.ERROR, reason)


def describe(active: Any, **attributes: Attribute) -> None:
    """What is known only now; `__` in a name is a dot."""
    if active is not None:
        active.set_attributes({name.replace("__", "."): value for name, value in attributes.items()})
