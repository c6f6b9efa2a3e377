"""Messages of download jobs as columns: all fields of the schema, by its names.

The columns follow from `proto/jobs.proto`: a field that is added there is a column more, and old files have null in it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from slipstream.pipeline.decode.decoded import Decoded
from slipstream.pipeline.decode.time import LATEST_MS

if TYPE_CHECKING:
    import pyarrow as pa
    from google.protobuf.descriptor import Descriptor

KINDS = ("DownloadTask", "JobStatus", "JobLog", "DeadLetterTask")

_TIMES = {"JobStatus": ("timestamp_ms", "told_at"), "JobLog": ("timestamp_ms", "logged_at")}
_TIMES["DeadLetterTask"] = ("failed_at_ms", "failed_at")
"""Of each kind: a time as its producer wrote it, and the column in which it is one."""

_HOST = r"^[A-Za-z][A-Za-z0-9+.-]*://(?:[^/?#]*@)?(?:\[(?P<six>[^\]/?#]*)\]|(?P<host>[^/:?#\[\]]*))"


def schema_of(kind: str) -> pa.Schema:
    """The columns of a kind of message, beside those that every message has."""
    import pyarrow as pa  # noqa: PLC0415

    decoded = _decode(kind, pa.array([], pa.binary()))
    return decoded.columns.schema


def decode_protobuf(kind: str, values: pa.Array) -> Decoded:
    """Example:
    decoded = decode_protobuf("JobStatus", batch.column("value"))
    """
    return _decode(kind, values)


def _decode(kind: str, values: pa.Array) -> Decoded:
    import pyarrow as pa  # noqa: PLC0415

    refused: dict[int, str] = {}
    parts: list[pa.RecordBatch] = []
    _convert(_handler(kind), values, 0, parts, refused)
    found = pa.Table.from_batches(parts, schema=parts[0].schema).combine_chunks().to_batches()
    columns = found[0] if found else parts[0].slice(0, 0)
    rows = _indices(len(values), refused)
    good = None
    for reason, bad in _poisonous(kind, columns):
        for row, is_bad in enumerate(bad.to_pylist()):
            if is_bad:
                refused.setdefault(rows[row].as_py(), reason)
        good = bad if good is None else _or(good, bad)
    if good is not None and refused:
        keep = _not(good)
        columns, rows = columns.filter(keep), rows.filter(keep)
    return Decoded(rows, _shaped(kind, columns), refused)


# Decoding


@functools.cache
def _handler(kind: str) -> Any:
    from ptars import HandlerPool, PtarsConfig  # noqa: PLC0415

    descriptor = _descriptor(kind)
    return HandlerPool([descriptor.file], PtarsConfig(list_value_name="element")).get_for_message(descriptor)


def _descriptor(kind: str) -> Descriptor:
    from slipstream.jobs import jobs_pb2  # noqa: PLC0415

    found: Descriptor = getattr(jobs_pb2, kind).DESCRIPTOR
    return found


def _convert(handler: Any, values: pa.Array, first: int, parts: list[pa.RecordBatch], refused: dict[int, str]) -> None:
    """One bad message fails its whole batch: halve until it is alone."""
    try:
        parts.append(handler.array_to_record_batch(values))
    except ValueError as error:
        if len(values) == 1:
            refused[first] = str(error)
            parts.append(handler.array_to_record_batch(values.slice(0, 0)))
            return
        middle = len(values) // 2
        _convert(handler, values.slice(0, middle), first, parts, refused)
        _convert(handler, values.slice(middle), first + middle, parts, refused)


def _indices(count: int, refused: Mapping[int, str]) -> pa.Array:
    import pyarrow as pa  # noqa: PLC0415

    if not refused:
        return pa.array(range(count), pa.int64())
    return pa.array([index for index in range(count) if index not in refused], pa.int64())


# What can be decoded, and is no message all the same


def _poisonous(kind: str, columns: pa.RecordBatch) -> list[tuple[str, pa.Array]]:
    """Reasons for which a row is refused, each with the rows it holds for."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute as pc  # noqa: PLC0415

    def exceeds(name: str, most: int) -> pa.Array:
        return pc.greater(columns.column(name), pa.scalar(most, pa.uint64()))

    if kind == "DeadLetterTask":
        # Of a task that could not be read at all, what is left has no job_id either.
        found = [("a DeadLetterTask without its task", pc.is_null(columns.column("task")))]
    else:
        found = [(f"a {kind} without a job_id", pc.equal(columns.column("job_id"), ""))]
    if kind in _TIMES:
        name, _ = _TIMES[kind]
        found.append((f"{name} is later than the year 9999", exceeds(name, LATEST_MS)))
    if kind == "JobStatus":
        found.append(("log_offset does not fit into 64 bits", exceeds("log_offset", 2**63 - 1)))
    return [(reason, bad) for reason, bad in found if pc.any(bad).as_py()]


def _or(left: pa.Array, right: pa.Array) -> pa.Array:
    import pyarrow.compute as pc  # noqa: PLC0415

    return pc.or_(left, right)


def _not(values: pa.Array) -> pa.Array:
    import pyarrow.compute as pc  # noqa: PLC0415

    return pc.invert(values)


# The shape of the tables


def _shaped(kind: str, columns: pa.RecordBatch) -> pa.RecordBatch:
    import pyarrow as pa  # noqa: PLC0415

    enums = {field.name: _names(field) for field in _descriptor(kind).fields if field.enum_type is not None}
    shaped: dict[str, pa.Array] = {}
    for field, column in zip(columns.schema, columns.columns, strict=True):
        if field.name in enums:
            shaped[field.name] = _named(column, enums[field.name])
        else:
            shaped[field.name] = _fitted(column, _table_type(field.type))
    for name, add in _BESIDES[kind].items():
        shaped[name] = add(shaped)
    return pa.record_batch(shaped)


def _names(field: Any) -> dict[int, str]:
    return {value.number: value.name for value in field.enum_type.values}


def _named(numbers: pa.Array, names: Mapping[int, str]) -> pa.Array:
    """A number that has no name, because its producer is newer, stays one."""
    import pyarrow as pa  # noqa: PLC0415

    encoded = numbers.dictionary_encode()
    texts = pa.array([names.get(number, str(number)) for number in encoded.dictionary.to_pylist()], pa.string())
    return texts.take(encoded.indices)


def _fitted(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """The same values in the types of tables. Where a map says a key twice, which no encoder does and any stranger may,
    the last counts, as for everybody who reads protobuf."""
    if not _has_repeated_keys(column):
        return column.cast(kind)
    import pyarrow as pa  # noqa: PLC0415

    return pa.array([_plain(value, kind) for value in column.to_pylist()], kind)


def _has_repeated_keys(column: pa.Array) -> bool:
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute as pc  # noqa: PLC0415

    if pa.types.is_struct(column.type):
        return any(_has_repeated_keys(child) for child in column.flatten())
    if not pa.types.is_map(column.type):
        return False
    keys = pa.ListArray.from_arrays(column.offsets, column.keys)
    encoded = pc.list_flatten(keys).dictionary_encode()
    # Of every entry, the number of its row and that of its key.
    rows = pc.list_parent_indices(keys).cast(pa.int64())
    pairs = pc.add(pc.multiply(rows, len(encoded.dictionary)), encoded.indices.cast(pa.int64()))
    return bool(pc.count_distinct(pairs).as_py() != len(pairs))


def _plain(value: Any, kind: pa.DataType) -> Any:
    import pyarrow as pa  # noqa: PLC0415

    if value is None:
        return None
    if pa.types.is_map(kind):
        return list(dict(value).items())
    if pa.types.is_struct(kind):
        return {field.name: _plain(value[field.name], field.type) for field in kind}
    return value


def _table_type(kind: pa.DataType) -> pa.DataType:
    """Tables have no unsigned numbers, and anything may be null: a field that old files do not have is."""
    import pyarrow as pa  # noqa: PLC0415

    if pa.types.is_unsigned_integer(kind):
        return pa.int64()
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _table_type(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_table_type(kind.key_type), _table_type(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _table_type(kind.value_type)))
    return kind


# Columns that save everybody a function


def _time_of(name: str) -> Callable[[dict[str, pa.Array]], pa.Array]:
    def add(columns: dict[str, pa.Array]) -> pa.Array:
        import pyarrow as pa  # noqa: PLC0415

        return columns[name].cast(pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC"))

    return add


def _field_of(name: str) -> Callable[[dict[str, pa.Array]], pa.Array]:
    def add(columns: dict[str, pa.Array]) -> pa.Array:
        import pyarrow as pa  # noqa: PLC0415
        import pyarrow.compute as pc  # noqa: PLC0415

        return pc.map_lookup(columns["fields"], pa.scalar(name), "first")

    return add


def _number_of(name: str) -> Callable[[dict[str, pa.Array]], pa.Array]:
    """Whatever is no number is nobody's count."""
    text_of = _field_of(name)

    def add(columns: dict[str, pa.Array]) -> pa.Array:
        import pyarrow as pa  # noqa: PLC0415
        import pyarrow.compute as pc  # noqa: PLC0415

        text = text_of(columns)
        is_number = pc.fill_null(pc.match_substring_regex(text, "^[0-9]{1,18}$"), False)
        return pc.if_else(is_number, text, pa.scalar(None, pa.string())).cast(pa.int64())

    return add


def _of_task(name: str) -> Callable[[dict[str, pa.Array]], pa.Array]:
    def add(columns: dict[str, pa.Array]) -> pa.Array:
        import pyarrow.compute as pc  # noqa: PLC0415

        return pc.struct_field(columns["task"], name)

    return add


def _host(columns: dict[str, pa.Array]) -> pa.Array:
    import pyarrow.compute as pc  # noqa: PLC0415

    found = pc.extract_regex(columns["url"], _HOST)
    six = pc.fill_null(pc.struct_field(found, "six"), "")
    host = pc.fill_null(pc.struct_field(found, "host"), "")
    return pc.utf8_lower(pc.if_else(pc.equal(six, ""), host, six))


_BESIDES: dict[str, dict[str, Callable[[dict[str, Any]], Any]]] = {
    "DownloadTask": {},
    "JobStatus": {"told_at": _time_of("timestamp_ms")},
    "JobLog": {
        "logged_at": _time_of("timestamp_ms"),
        "step": _field_of("step"),
        "tenant": _field_of("tenant"),
        "bytes": _number_of("bytes"),
    },
    "DeadLetterTask": {
        "failed_at": _time_of("failed_at_ms"),
        **{name: _of_task(name) for name in ("job_id", "resource_id", "job_type", "tenant", "url")},
        "host": _host,
    },
}
