"""What is told of slips, as rows."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pyarrow as pa
import pytest

from slipstream.pipeline.decode import decode_progress
from slipstream.slip.event import StepError
from slipstream.slip.progress import Progress, encode_progress

AT = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def told(**fields: Any) -> dict[str, Any]:
    return {"kind": "started", "correlationId": "c-1", "at": "2026-01-01T00:00:00Z", **fields}


def message(*events: dict[str, Any]) -> bytes:
    return json.dumps(events).encode()


def test_each_event_of_a_message_is_a_row() -> None:
    found = decode_progress(pa.array([message(told(step="a"), told(step="b")), message(told(step="c"))]))
    assert found.rows.to_pylist() == [0, 0, 1]
    assert found.columns.column("index").to_pylist() == [0, 1, 0]
    assert found.columns.column("step").to_pylist() == ["a", "b", "c"]
    assert not found.refused


def test_a_row_has_all_that_was_told() -> None:
    error = StepError("timeout", "too slow", retryable=True)
    event = Progress(
        kind="retried", correlation_id="c", at=AT, type="chat", step="a", attempt=2, duration_ms=1.5, error=error, run=1
    )
    (row,) = decode_progress(pa.array([b"[" + encode_progress(event) + b"]"])).columns.to_pylist()
    assert row["at"] == AT
    assert (row["kind"], row["attempt"], row["run"], row["duration_ms"]) == ("retried", 2, 1, 1.5)
    assert (row["error_code"], row["error_message"], row["error_retryable"]) == ("timeout", "too slow", True)


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (told(kind="exploded"), "exploded"),
        (told(correlationId=""), "correlationId"),
        (told(at="2600-01-01T00:00:00Z"), "nobody's clock"),
        (told(at="1969-12-31T23:59:59Z"), "nobody's clock"),
        (told(attempt=-1), "count from 0"),
        (told(run=2**40), "count from 0"),
        (told(step=7), "str"),
    ],
)
def test_a_message_with_a_bad_event_is_refused_whole(event: dict[str, Any], reason: str) -> None:
    found = decode_progress(pa.array([message(told(), event), message(told())]))
    assert found.rows.to_pylist() == [1]
    assert reason in found.refused[0]


@pytest.mark.parametrize("value", [b"", b"{}", b"[", b"\xff", b"[" * 5000, b"[1]"])
def test_what_is_no_list_of_events_is_refused(value: bytes) -> None:
    assert list(decode_progress(pa.array([value])).refused) == [0]
