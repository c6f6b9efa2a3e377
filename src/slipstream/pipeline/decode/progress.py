"""What is told of slips, as columns: a row an event."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from slipstream.pipeline.decode.decoded import Decoded
from slipstream.slip.progress import Progress

if TYPE_CHECKING:
    import pyarrow as pa

_decode = msgspec.json.Decoder(list[Progress]).decode

EARLIEST = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
LATEST = dt.datetime(2500, 1, 1, tzinfo=dt.UTC)
"""Of a time that can be compared with others as a number of 54 bits, in microseconds."""
_COUNT_MAX = 1_000_000_000
"""Of attempts and runs: one more is still a number of 32 bits."""
_LONGEST_MS = 100 * 366 * 24 * 3600 * 1000
"""A hundred years: what began so long before its end is still a time that all can show."""


def decode_progress(values: pa.Array) -> Decoded:
    """A message in which one event is bad is refused whole: what it tells belongs together."""
    import pyarrow as pa  # noqa: PLC0415

    rows: list[int] = []
    indices: list[int] = []
    events: list[Progress] = []
    refused: dict[int, str] = {}
    for row, value in enumerate(values.to_pylist()):
        try:
            told = _decode(value)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            refused[row] = f"no list of what happens to slips: {error}"
            continue
        if reason := next((reason for reason in map(_why_not, told) if reason), ""):
            refused[row] = reason
            continue
        rows += [row] * len(told)
        indices += range(len(told))
        events += told
    columns = {"index": pa.array(indices, pa.int32())}
    for name, (kind, get) in _columns().items():
        columns[name] = pa.array([get(event) for event in events], kind)
    return Decoded(pa.array(rows, pa.int64()), pa.record_batch(columns), refused)


def _why_not(event: Progress) -> str:
    if not event.correlation_id:
        return "an event of no slip: its correlationId is empty"
    if not EARLIEST <= event.at < LATEST:
        return f"at: {event.at.isoformat()} is nobody's clock"
    if not (0 <= event.attempt <= _COUNT_MAX and 0 <= event.run <= _COUNT_MAX):
        return f"attempt and run count from 0 to {_COUNT_MAX}"
    if event.duration_ms is not None and not abs(event.duration_ms) <= _LONGEST_MS:
        return f"durationMs: {event.duration_ms:g} is longer than a hundred years"
    return ""


def _columns() -> dict[str, tuple[pa.DataType, Callable[[Progress], Any]]]:
    import pyarrow as pa  # noqa: PLC0415

    def text(name: str) -> tuple[pa.DataType, Callable[[Progress], Any]]:
        return pa.string(), lambda event: getattr(event, name)

    return {
        "kind": text("kind"),
        "correlation_id": text("correlation_id"),
        "run": (pa.int32(), lambda event: event.run),
        "type": text("type"),
        "step": text("step"),
        "attempt": (pa.int32(), lambda event: event.attempt),
        "at": (pa.timestamp("us", "UTC"), lambda event: event.at),
        "duration_ms": (pa.float64(), lambda event: event.duration_ms),
        "error_code": (pa.string(), lambda event: event.error.code if event.error else None),
        "error_message": (pa.string(), lambda event: event.error.message if event.error else None),
        "error_retryable": (pa.bool_(), lambda event: event.error.retryable if event.error else None),
        "detail": text("detail"),
        "steps": (pa.list_(pa.field("element", pa.string())), lambda event: event.steps),
        "parent": text("parent"),
        "trace_id": text("trace_id"),
        "by": text("by"),
    }
