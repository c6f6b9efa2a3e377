"""The columns of a log as those who read Arrow get them, from the columns that its segments have.

A segment keeps all that stands beside a payload in one column, `meta`, in the encoding of the broker. Here it is taken
apart without a Python object for each row: every distinct meta is decoded once and the rows refer to it, and where no
row has any, none is looked at. `/v2` answers with these columns; whoever opens segment files makes them likewise.

Arrow arrays are made from buffers, never from lists or scalars: for those `pyarrow` imports pandas where it is
installed, one second and more in which a server has better things to do.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import accumulate, chain
from typing import TYPE_CHECKING, TypeVar

import msgspec

from slipstream.broker.envelope import decode_meta

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")

_encode_json = msgspec.json.Encoder().encode


@cache
def log_schema() -> pa.Schema:
    import pyarrow as pa  # noqa: PLC0415 - a quarter of a second that only who reads Arrow pays

    return pa.schema(
        [
            pa.field("partition", pa.int32(), nullable=False),
            pa.field("offset", pa.int64(), nullable=False),
            pa.field("timestamp", pa.timestamp("ms", "UTC"), nullable=False),
            pa.field("key", pa.binary(), nullable=False),
            pa.field("value", pa.binary(), nullable=False),
            pa.field("attributes", pa.map_(pa.string(), pa.string())),
            pa.field("envelope", pa.string()),
            pa.field("routing", pa.string()),
            pa.field("deliver_at", pa.timestamp("ms", "UTC")),
            pa.field("redriven_from", pa.string()),
        ]
    )


def log_columns(partition: int, stored: pa.RecordBatch) -> pa.RecordBatch:
    """`stored` has the columns of a segment: offset, timestamp_ms, key, value, meta. Returns those of `log_schema`.

    Costs much the same for few rows as for some thousand: join small batches first.
    """
    import pyarrow as pa  # noqa: PLC0415

    schema = log_schema()
    offset, timestamp_ms, key, value, meta = stored.columns
    numbers = pa.py_buffer(array("i", [partition]) * stored.num_rows)
    number = pa.Array.from_buffers(pa.int32(), stored.num_rows, [None, numbers])
    timestamp = timestamp_ms.view(schema.field("timestamp").type)
    beside = beside_columns(meta)
    return pa.RecordBatch.from_arrays([number, offset, timestamp, key, value, *beside], schema=schema)


def beside_columns(meta: pa.BinaryArray) -> list[pa.Array]:
    """What stands beside the payloads, as the last five columns of `log_schema`."""
    import pyarrow as pa  # noqa: PLC0415

    types = [field.type for field in log_schema()][-5:]
    if not meta.total_values_length:
        return [pa.nulls(len(meta), each) for each in types]
    encoded = meta.dictionary_encode()
    attributes: list[dict[str, str] | None] = []
    envelopes: list[bytes | None] = []
    routings: list[bytes | None] = []
    due_ms: list[int | None] = []
    origins: list[bytes | None] = []
    # One by one, so that none outlives its turn: thousands at a time would each be looked at by the garbage collector,
    # which doubled the cost.
    for each in map(decode_meta, encoded.dictionary.to_pylist()):
        attributes.append(each.attributes)
        envelopes.append(None if each.envelope is None else _encode_json(each.envelope))
        routings.append(None if each.routing is None else _encode_json(each.routing))
        due_ms.append(each.deliver_at_ms)
        origins.append(each.redriven_from.encode() or None)
    # Where no two are the same, they stand in the order of the rows.
    rows = encoded.indices if len(encoded.dictionary) < len(meta) else None
    return [
        _spread(_maps, attributes, types[0], rows),
        _spread(_texts, envelopes, types[1], rows),
        _spread(_texts, routings, types[2], rows),
        _spread(_times, due_ms, types[3], rows),
        _spread(_texts, origins, types[4], rows),
    ]


def _spread(
    make: Callable[[list[T | None]], pa.Array], cells: list[T | None], kind: pa.DataType, rows: pa.Array | None
) -> pa.Array:
    """A column, in which each of the `rows` has the cell that it names; most columns have none at all."""
    import pyarrow as pa  # noqa: PLC0415

    if cells.count(None) == len(cells):
        return pa.nulls(len(cells) if rows is None else len(rows), kind)
    return make(cells) if rows is None else make(cells).take(rows)


# Arrays


def _texts(texts: Sequence[bytes | None]) -> pa.Array:
    import pyarrow as pa  # noqa: PLC0415

    there = [text or b"" for text in texts]
    buffers = [_validity(texts), _ends(map(len, there)), pa.py_buffer(b"".join(there))]
    return pa.Array.from_buffers(pa.string(), len(texts), buffers)


def _maps(maps: Sequence[dict[str, str] | None]) -> pa.Array:
    import pyarrow as pa  # noqa: PLC0415

    there = [entries or {} for entries in maps]
    keys = _texts([key.encode() for key in chain.from_iterable(there)])
    values = _texts([value.encode() for entries in there for value in entries.values()])
    kind = log_schema().field("attributes").type
    entries = pa.StructArray.from_arrays([keys, values], fields=[kind.key_field, kind.item_field])
    return pa.Array.from_buffers(kind, len(maps), [_validity(maps), _ends(map(len, there))], children=[entries])


def _times(times_ms: Sequence[int | None]) -> pa.Array:
    import pyarrow as pa  # noqa: PLC0415

    values = pa.py_buffer(array("q", (time_ms or 0 for time_ms in times_ms)))
    return pa.Array.from_buffers(log_schema().field("deliver_at").type, len(times_ms), [_validity(times_ms), values])


def _ends(lengths: Iterable[int]) -> pa.Buffer:
    """Arrow's own table: value i lies from entry i to entry i + 1."""
    import pyarrow as pa  # noqa: PLC0415

    return pa.py_buffer(array("i", accumulate(lengths, initial=0)))


def _validity(cells: Sequence[T | None]) -> pa.Buffer | None:
    """A bit for each cell, the first the lowest, that says whether there is one; None where all are there."""
    import pyarrow as pa  # noqa: PLC0415

    if None not in cells:
        return None
    bits = "".join("0" if cell is None else "1" for cell in reversed(cells))
    return pa.py_buffer(int(bits, 2).to_bytes((len(cells) + 7) // 8, "little"))
