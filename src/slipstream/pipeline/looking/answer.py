"""What a query answers: rows of plain values, as they come."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from slipstream.pipeline.errors import PipelineError
from slipstream.pipeline.looking.far_time import python_values

if TYPE_CHECKING:
    import pyarrow as pa

Row: TypeAlias = tuple[Any, ...]


class QueryRefused(PipelineError):
    """The SQL is wrong, or wants more than to read."""


class Answer:
    """Rows that are read while they are asked for.

    Example:
        answer = tables.query("select tenant, sum(stored) from job_throughput group by tenant")
        for row in answer: ...
    """

    def __init__(self, reader: pa.RecordBatchReader, limit: int | None) -> None:
        self._reader = reader
        self._limit = limit
        self.columns: tuple[str, ...] = tuple(reader.schema.names)
        self.numbers: tuple[bool, ...] = tuple(_is_number(field.type) for field in reader.schema)
        """Which columns a person would want on the right."""
        self.more = False
        """Whether there is more than was asked for; known when the rows were read."""

    def __iter__(self) -> Iterator[Row]:
        count = 0
        for batch in self._batches():
            columns = [_plain_column(column) for column in batch.columns]
            for row in zip(*columns, strict=True):
                if count == self._limit:
                    self.more = True
                    return
                count += 1
                yield row

    def _batches(self) -> Iterator[pa.RecordBatch]:
        """Some mistakes show only while rows are made, such as a text that is no number."""
        import duckdb  # noqa: PLC0415
        import pyarrow as pa  # noqa: PLC0415

        try:
            yield from self._reader
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            raise QueryRefused(str(error).strip()) from error

    def dicts(self) -> Iterator[dict[str, Any]]:
        for row in self:
            yield dict(zip(self.columns, row, strict=True))


def _is_number(kind: pa.DataType) -> bool:
    import pyarrow as pa  # noqa: PLC0415

    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _plain_column(column: pa.Array) -> list[Any]:
    import pyarrow as pa  # noqa: PLC0415

    values = python_values(column)
    if _is_plain(column.type):
        return values
    is_whole = pa.types.is_decimal(column.type) and column.type.scale == 0
    return [None if value is None else _plain(value, column.type, is_whole) for value in values]


def _is_plain(kind: pa.DataType) -> bool:
    import pyarrow as pa  # noqa: PLC0415

    types = pa.types
    return bool(types.is_integer(kind) or types.is_string(kind) or types.is_boolean(kind) or types.is_binary(kind))


def _plain(value: Any, kind: pa.DataType, is_whole: bool = False) -> Any:
    """As JSON and people know it; bytes stay bytes."""
    import pyarrow as pa  # noqa: PLC0415

    if value is None:
        return None
    if pa.types.is_map(kind):
        pairs = [(_plain(key, kind.key_type), _plain(each, kind.item_type)) for key, each in value]
        return {key if isinstance(key, str) else value_text(key): each for key, each in pairs}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return [_plain(each, kind.value_type) for each in value]
    if pa.types.is_struct(kind):
        return {field.name: _plain(value.get(field.name), field.type) for field in kind}
    if isinstance(value, decimal.Decimal):  # the sum of whole numbers is one, too
        return int(value) if is_whole or value == value.to_integral_value() else float(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return value.astimezone(dt.UTC)
    if isinstance(value, dt.timedelta | dt.time):
        return str(value)
    if hasattr(value, "nanoseconds") and hasattr(value, "months"):
        return _interval(value.months, value.days, value.nanoseconds)
    return value


def _interval(months: int, days: int, nanoseconds: int) -> str:
    clock = dt.timedelta(microseconds=nanoseconds / 1000)
    try:
        span = str(dt.timedelta(days=days) + clock)
    except OverflowError:
        span = f"{days} days, {clock}"
    return f"{months} months, {span}" if months else span


# For people and for JSON


def value_text(value: Any) -> str:
    """A value as one cell: text as it is, times in UTC, bytes as text or 0x…, all that is nested as JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return bytes_text(value)
    if isinstance(value, dt.datetime):
        text = value.isoformat(" ", "microseconds" if value.microsecond else "seconds")
        return text.replace("+00:00", "Z")
    if isinstance(value, dict | list):
        return json.dumps(json_value(value), ensure_ascii=False)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.10g}"
    return str(value)


def bytes_text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return f"0x{value.hex()}"


def json_value(value: Any) -> Any:
    """Bytes that are no text are told from a text that looks like them."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"hex": value.hex()}
    if isinstance(value, dict):
        return {key: json_value(each) for key, each in value.items()}
    if isinstance(value, list):
        return [json_value(each) for each in value]
    if isinstance(value, dt.datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, dt.date):
        return value.isoformat()
    return value
