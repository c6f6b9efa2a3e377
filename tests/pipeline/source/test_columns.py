"""From what lies in the log to columns, without a server."""

from __future__ import annotations

import msgspec
import pyarrow as pa

from slipstream.broker.envelope import DeadLetter, Envelope, Meta, encode_meta
from slipstream.log_columns import log_columns
from slipstream.pipeline.source.columns import ENVELOPE, LOG_SCHEMA, to_log, without_meta

PLAIN = [name for name in LOG_SCHEMA.names if name not in {"headers", "envelope", "routing"}]


def stored(*metas: bytes) -> pa.RecordBatch:
    """As a segment has it."""
    count = len(metas)
    return pa.record_batch(
        {
            "offset": pa.array(range(count), pa.int64()),
            "timestamp_ms": pa.array([1_000] * count, pa.int64()),
            "key": pa.array([b"k"] * count, pa.binary()),
            "value": pa.array([b"v"] * count, pa.binary()),
            "meta": pa.array(metas, pa.binary()),
        }
    )


def with_envelope(text: str) -> pa.RecordBatch:
    """As `/v2` answers."""
    batch = log_columns(0, stored(b""))
    return batch.set_column(batch.schema.get_field_index("envelope"), "envelope", pa.array([text], pa.string()))


def dead_letter(*, routed_at_ms: int, attempts: int = 1) -> str:
    letter = DeadLetter(
        original_topic="orders",
        original_partition=0,
        original_offset=0,
        group="g",
        attempts=attempts,
        last_error="broken",
        reason="max_attempts",
        routed_at_ms=routed_at_ms,
    )
    return msgspec.json.encode(Envelope(dlq=letter)).decode()


def test_a_clock_that_is_far_off_does_not_keep_a_dead_letter_from_being_read() -> None:
    microseconds = []
    for routed_at_ms in (1_500, 300_000_000_000_000, 2**63 - 1, -(2**63)):
        column = to_log("dlq.orders", with_envelope(dead_letter(routed_at_ms=routed_at_ms))).column("envelope")
        microseconds.append(column.field("dlq").field("routed_at").cast(pa.int64())[0].as_py())
    last = (2**63 - 1) // 1000 * 1000
    assert microseconds == [1_500_000, 300_000_000_000_000_000, last, -last]


def test_any_number_of_attempts_is_a_number() -> None:
    column = to_log("dlq.orders", with_envelope(dead_letter(routed_at_ms=0, attempts=2**53))).column("envelope")
    assert column.field("dlq").field("attempts").to_pylist() == [2**53]


def test_what_is_not_wanted_is_not_looked_at() -> None:
    broken = with_envelope("this is no envelope")
    assert to_log("orders", broken, PLAIN).num_rows == 1
    unreadable = stored(b"\xc1 neither is this")
    assert to_log("orders", log_columns(0, without_meta(unreadable)), PLAIN).column("value").to_pylist() == [b"v"]


def test_the_columns_come_in_the_order_they_are_asked_for() -> None:
    meta = encode_meta(Meta(envelope=Envelope(tenant_id="acme"), attributes={"n": "1"}))
    batch = to_log("orders", log_columns(3, stored(meta, b"")), ["envelope", "partition", "headers"])
    assert batch.schema.names == ["envelope", "partition", "headers"]
    assert batch.schema.field("envelope").type == ENVELOPE
    assert batch.column("headers").to_pylist() == [[("n", "1")], None]
    assert batch.column("partition").to_pylist() == [3, 3]


def test_a_piece_of_a_batch_is_taken_as_it_is() -> None:
    batch = log_columns(0, without_meta(stored(*[b""] * 10).slice(2, 3)))
    assert to_log("orders", batch, PLAIN).column("offset").to_pylist() == [2, 3, 4]
