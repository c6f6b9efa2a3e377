"""The columns of messages, as Arrow has them and as Spark does.

What lies in the log becomes columns without a Python object per message: keys and values are taken as they are, and
what few messages have, or many have alike, is decoded once for each that differs.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

if TYPE_CHECKING:
    from slipstream.broker.envelope import DeadLetter, Envelope, Routing

TIME = pa.timestamp("us", "UTC")
MILLISECONDS_MAX = (2**63 - 1) // 1000
"""That fit into such a time."""
TEXTS = pa.map_(pa.string(), pa.string())

ENVELOPE = pa.struct(
    [
        ("run_id", pa.string()),
        ("step_id", pa.string()),
        ("parent_step_id", pa.string()),
        ("tenant_id", pa.string()),
        ("idempotency_key", pa.string()),
        ("target_topic", pa.string()),
        ("partition_override", pa.int32()),  # as `partition` is: what names none is not stored
        ("deadline", TIME),
        (
            "retry_policy",
            # What a producer asks for may be as large as JSON can carry.
            pa.struct([("max_attempts", pa.int64()), ("backoff_ms", pa.int64()), ("max_backoff_ms", pa.int64())]),
        ),
        ("labels", TEXTS),
        (
            "dlq",
            pa.struct(
                [
                    ("original_topic", pa.string()),
                    ("original_partition", pa.int32()),
                    ("original_offset", pa.int64()),
                    ("group", pa.string()),
                    ("attempts", pa.int64()),
                    ("last_error", pa.string()),
                    ("reason", pa.string()),
                    ("routed_at", TIME),
                ]
            ),
        ),
    ]
)
ROUTING = pa.struct([("label", pa.string()), ("meta", TEXTS)])

LOG_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", TIME),
        ("headers", TEXTS),
        ("envelope", ENVELOPE),
        ("routing", ROUTING),
    ]
)
"""A message. Whatever it does not have is null; a key it does not have is empty, as it is stored."""

RANGE_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("incarnation", pa.string()),
        ("partition", pa.int32()),
        ("start", pa.int64()),
        ("end", pa.int64()),
    ]
)
"""What `content=ranges` has instead."""


BESIDE = frozenset({"headers", "envelope", "routing"})
"""What a segment keeps in one column, `meta`."""


def schema_with(names: Sequence[str]) -> pa.Schema:
    """Of `LOG_SCHEMA`, only these columns."""
    return pa.schema([LOG_SCHEMA.field(name) for name in names])


def to_log(topic: str, batch: pa.RecordBatch, names: Sequence[str] = LOG_SCHEMA.names) -> pa.RecordBatch:
    """Of the columns of `/v2` reads. What is not among the names is not looked at."""
    return pa.record_batch([_column(topic, batch, name) for name in names], schema=schema_with(names))


def _column(topic: str, batch: pa.RecordBatch, name: str) -> pa.Array:
    match name:
        case "topic":
            return repeated(topic, batch.num_rows)
        case "timestamp":
            return batch.column(name).cast(TIME)
        case "headers":
            return batch.column("attributes")
        case "envelope":
            return _decoded(batch.column(name), ENVELOPE, _envelope)
        case "routing":
            return _decoded(batch.column(name), ROUTING, _routing)
        case _:
            return batch.column(name)


def without_meta(stored: pa.RecordBatch) -> pa.RecordBatch:
    """The columns of a segment as if no message had anything beside it, for who wants nothing of that: to take it apart
    is most of the work."""
    rows = stored.num_rows
    empty = pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(bytes(4 * (rows + 1))), pa.py_buffer(b"")])
    return stored.set_column(stored.schema.get_field_index("meta"), "meta", empty)


_REPEATED_ROWS = 1 << 16


def repeated(text: str, rows: int) -> pa.Array:
    """A column that is the same in all rows. Made of buffers: for a list or a scalar Arrow imports pandas where it is
    installed, which takes a second of every process that Spark starts."""
    if rows > _REPEATED_ROWS:
        return _repeated(text, rows)
    return _repeated(text, _REPEATED_ROWS).slice(0, rows)


@lru_cache(4)
def _repeated(text: str, rows: int) -> pa.Array:
    encoded = text.encode()
    ends = pa.py_buffer(array("i", range(0, len(encoded) * rows + 1, len(encoded) or 1)))
    return pa.Array.from_buffers(pa.string(), rows, [None, ends, pa.py_buffer(encoded * rows)])


def _decoded(column: pa.StringArray, kind: pa.DataType, decode: Callable[[str], dict[str, Any]]) -> pa.Array:
    """JSON as structs."""
    if column.null_count == len(column):
        return pa.nulls(len(column), kind)
    encoded = column.dictionary_encode()
    distinct = pa.array([decode(text) for text in encoded.dictionary.to_pylist()], kind)
    return distinct.take(encoded.indices)


@cache
def _decoders() -> tuple[Callable[[str], Envelope], Callable[[str], Routing]]:
    from slipstream.broker.envelope import Envelope, Routing  # noqa: PLC0415 - for who meets one

    return msgspec.json.Decoder(Envelope).decode, msgspec.json.Decoder(Routing).decode


def _envelope(text: str) -> dict[str, Any]:
    found = _decoders()[0](text)
    policy = found.retry_policy
    return {
        "run_id": found.run_id or None,
        "step_id": found.step_id or None,
        "parent_step_id": found.parent_step_id or None,
        "tenant_id": found.tenant_id or None,
        "idempotency_key": found.idempotency_key or None,
        "target_topic": found.target_topic or None,
        "partition_override": found.partition_override,
        "deadline": found.deadline,
        "retry_policy": None if policy is None else msgspec.structs.asdict(policy),
        "labels": None if found.labels is None else list(found.labels.items()),
        "dlq": None if found.dlq is None else _dead_letter(found.dlq),
    }


def _dead_letter(found: DeadLetter) -> dict[str, Any]:
    return {
        "original_topic": found.original_topic,
        "original_partition": found.original_partition,
        "original_offset": found.original_offset,
        "group": found.group,
        "attempts": found.attempts,
        "last_error": found.last_error,
        "reason": found.reason,
        # As a number, which has room for any clock; a date ends with the year 9999.
        "routed_at": max(-MILLISECONDS_MAX, min(found.routed_at_ms, MILLISECONDS_MAX)) * 1000,
    }


def _routing(text: str) -> dict[str, Any]:
    found = _decoders()[1](text)
    return {"label": found.label or None, "meta": list(found.meta.items())}


def combined(batches: Iterable[pa.RecordBatch], rows: int, size: int) -> Iterator[pa.RecordBatch]:
    """The same rows in fewer batches, each of at least so many rows or bytes but the last."""
    held: list[pa.RecordBatch] = []
    held_rows = held_bytes = 0
    for batch in batches:
        held.append(batch)
        held_rows += batch.num_rows
        held_bytes += batch.get_total_buffer_size()  # `nbytes` takes 20 µs, for a page of 512 rows
        if held_rows >= rows or held_bytes >= size:
            yield _one(held)
            held, held_rows, held_bytes = [], 0, 0
    if held_rows:
        yield _one(held)


def _one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
