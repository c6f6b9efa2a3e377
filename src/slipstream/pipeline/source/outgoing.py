"""Rows as messages: what a frame must look like to be written, and what becomes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegralType,
    MapType,
    NullType,
    StringType,
    StructType,
)

from slipstream.pipeline.source.errors import ConnectorError

if TYPE_CHECKING:
    from slipstream.api import EnvelopeFields, ProduceMessage

REQUEST_BYTES = 512 << 10
REQUEST_MESSAGES = 5_000
"""In one request, at most, unless a single message is larger. A server takes 16 MiB (max_batch_bytes) and 10,000
messages (max_batch_messages) if it is told nothing else, but everybody waits while it takes a request apart."""
MESSAGE_BYTES = 64
"""What the names of the fields and the lengths take of a message, at most."""

_encode = msgspec.msgpack.Encoder().encode

Request = tuple[str, list["ProduceMessage[bytes]"]]
"""A topic, and messages for it."""


def check_columns(schema: StructType, topic: str | None) -> None:
    """Before anything is written."""
    names = schema.fieldNames()
    for field in schema.fields:
        if field.name not in COLUMNS:
            raise ConnectorError(
                f"a message has no column {field.name}: select only what is to be written, of {', '.join(COLUMNS)}"
            )
        is_right, wanted = COLUMNS[field.name]
        if not is_right(field.dataType) and not isinstance(field.dataType, NullType):
            raise ConnectorError(f"column {field.name} is {field.dataType.simpleString()}: it must be {wanted}")
    if "value" not in names:
        raise ConnectorError(f"there is no column value, which every message has: there are {', '.join(names)}")
    if topic is None and "topic" not in names:
        raise ConnectorError("nobody says where the rows go: set the option topic, or have a column topic")


def _is_payload(kind: DataType) -> bool:
    return isinstance(kind, BinaryType | StringType)


def _is_headers(kind: DataType) -> bool:
    if isinstance(kind, MapType):
        return isinstance(kind.keyType, StringType) and isinstance(kind.valueType, StringType)
    return isinstance(kind, ArrayType) and isinstance(kind.elementType, StructType) and len(kind.elementType) == 2


def _is_envelope(kind: DataType) -> bool:
    from slipstream.api import EnvelopeFields  # noqa: PLC0415 - here and below: for the processes that write

    return isinstance(kind, StructType) and set(kind.fieldNames()) <= set(EnvelopeFields.__struct_fields__)


COLUMNS: dict[str, tuple[Callable[[DataType], bool], str]] = {
    "value": (_is_payload, "binary or string"),
    "key": (_is_payload, "binary or string"),
    "topic": (lambda kind: isinstance(kind, StringType), "string"),
    "partition": (lambda kind: isinstance(kind, IntegralType), "int"),
    "headers": (_is_headers, "map<string,string>, or array<struct<key:string,value:binary>> as with Kafka"),
    "envelope": (
        _is_envelope,
        "a struct of what a producer may set: run_id, step_id, parent_step_id, tenant_id, idempotency_key, "
        "target_topic, deadline, retry_policy, partition_override and labels",
    ),
}


def requests_of(batches: Iterable[pa.RecordBatch], topic: str | None) -> Iterator[Request]:
    """The rows, in requests of a size that a server takes; those of a topic stay in their order."""
    waiting: dict[str, list[ProduceMessage[bytes]]] = {}
    sizes: dict[str, int] = {}
    for batch in batches:
        for name, message in _messages(batch, topic):
            size = _size(message)
            if name in waiting and (sizes[name] + size > REQUEST_BYTES or len(waiting[name]) >= REQUEST_MESSAGES):
                yield name, waiting.pop(name)
            if name not in waiting:
                waiting[name], sizes[name] = [], 0
            waiting[name].append(message)
            sizes[name] += size
    yield from waiting.items()


def _size(message: ProduceMessage[bytes]) -> int:
    """On its way, at most."""
    size = len(message.value) + len(message.key or b"") + MESSAGE_BYTES
    if message.attributes is None and message.envelope is None:
        return size
    return size + len(_encode((message.attributes, message.envelope)))


def _messages(batch: pa.RecordBatch, topic: str | None) -> Iterator[tuple[str, ProduceMessage[bytes]]]:
    from slipstream.api import ProduceMessage  # noqa: PLC0415

    def column(name: str) -> list[Any]:
        there = name in batch.schema.names
        return batch.column(name).to_pylist() if there else [None] * batch.num_rows

    rows = zip(*(column(name) for name in ("value", "key", "topic", "partition", "headers", "envelope")), strict=True)
    for value, key, said, partition, headers, envelope in rows:
        name = said or topic
        if not name:
            raise ConnectorError("a row has no topic, and there is no option topic for such rows: set it")
        if value is None:
            raise ConnectorError(f"a row for {name} has no value: a message has one, though it may be empty")
        yield (
            name,
            ProduceMessage(
                value=_bytes(value),
                key=None if key is None else _bytes(key),
                attributes=None if headers is None else _attributes(headers),
                envelope=_envelope(envelope, partition),
            ),
        )


def _bytes(payload: str | bytes) -> bytes:
    return payload.encode() if isinstance(payload, str) else bytes(payload)


def _attributes(headers: Iterable[Any]) -> dict[str, str]:
    found = {}
    for header in headers:
        key, value = header.values() if isinstance(header, dict) else header
        try:
            found[key] = value if isinstance(value, str) else bytes(value or b"").decode()
        except UnicodeDecodeError as error:
            raise ConnectorError(f"header {key} is no text, and attributes are: {error}") from error
    return found


def _envelope(found: dict[str, Any] | None, partition: int | None) -> EnvelopeFields | None:
    from slipstream.api import EnvelopeFields  # noqa: PLC0415

    if found is None and partition is None:
        return None
    fields = {name: value for name, value in (found or {}).items() if value is not None}
    if partition is not None:
        fields["partition_override"] = partition
    if "labels" in fields:
        fields["labels"] = dict(fields["labels"])
    if "retry_policy" in fields:
        policy = fields["retry_policy"]
        fields["retry_policy"] = {name: value for name, value in policy.items() if value is not None}
    try:
        return msgspec.convert(fields, EnvelopeFields)
    except msgspec.ValidationError as error:
        raise ConnectorError(f"an envelope cannot be right: {error}") from error
