"""From rows to requests, without a server."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from slipstream.api import ProduceMessage
from slipstream.pipeline.source.errors import ConnectorError
from slipstream.pipeline.source.outgoing import REQUEST_BYTES, REQUEST_MESSAGES, Request, check_columns, requests_of

TEXTS = pa.map_(pa.string(), pa.string())
POLICY = pa.struct([("max_attempts", pa.int64()), ("backoff_ms", pa.int64())])


def requests(rows: list[dict[str, Any]], option: str | None = "orders", /, **types: pa.DataType) -> list[Request]:
    """Of rows that come in batches of a hundred, as Spark's do in batches of some thousand."""
    columns = {"value": pa.binary(), **types}
    schema = pa.schema([(name, kind) for name, kind in columns.items() if name in rows[0]])
    batches = pa.Table.from_pylist(rows, schema).to_batches(max_chunksize=100)
    return list(requests_of(batches, option))


def message(row: dict[str, Any], **types: pa.DataType) -> ProduceMessage[bytes]:
    ((_, (found,)),) = requests([row], **types)
    return found


# Their size


@pytest.mark.parametrize(
    ("row", "types"),
    [
        ({"value": b"x" * 2_000}, {}),
        ({"value": b"x", "key": b"k" * 2_000}, {"key": pa.binary()}),
        ({"value": b"x", "headers": [("traceparent", "ü" * 1_000)]}, {"headers": TEXTS}),
        (
            {"value": b"x", "envelope": {"labels": [("note", "y" * 2_000)]}},
            {"envelope": pa.struct([("labels", TEXTS)])},
        ),
        ({"value": b"", "key": b"", "headers": [("", "")] * 10}, {"key": pa.binary(), "headers": TEXTS}),
    ],
)
def test_no_request_is_larger_than_it_should_be_whatever_makes_it_large(
    row: dict[str, Any], types: dict[str, pa.DataType]
) -> None:
    found = requests([row] * 2_000, **types)
    assert sum(len(messages) for _, messages in found) == 2_000
    assert max(len(msgspec.msgpack.encode(messages)) for _, messages in found) <= REQUEST_BYTES


def test_requests_are_about_as_large_as_they_may_be() -> None:
    row = {"value": b"x" * 1_000, "headers": [("n", "y" * 1_000)]}
    found = requests([row] * 1_000, headers=TEXTS)
    assert len(found) == 4
    assert len(msgspec.msgpack.encode(found[0][1])) > REQUEST_BYTES * 0.9


def test_small_messages_are_counted() -> None:
    found = requests([{"value": b"x"}] * (REQUEST_MESSAGES + 1))
    assert [len(messages) for _, messages in found] == [REQUEST_MESSAGES, 1]


def test_a_message_that_is_too_large_is_alone() -> None:
    rows = [{"value": b"a"}, {"value": b"x" * (REQUEST_BYTES + 1)}, {"value": b"b"}]
    assert [len(messages) for _, messages in requests(rows)] == [1, 1, 1]


def test_the_rows_of_a_topic_stay_in_their_order() -> None:
    rows = [{"value": b"%d" % n + b"x" * 5_000, "topic": "even" if n % 2 == 0 else None} for n in range(500)]
    found: dict[str, list[int]] = {}
    for topic, messages in requests(rows, "odd", topic=pa.string()):
        found.setdefault(topic, []).extend(int(each.value.rstrip(b"x")) for each in messages)
    assert found == {"even": list(range(0, 500, 2)), "odd": list(range(1, 500, 2))}


# What becomes of a row


def test_text_is_sent_as_bytes() -> None:
    found = message({"value": "grüße", "key": "user:1"}, value=pa.string(), key=pa.string())
    assert (found.value, found.key) == ("grüße".encode(), b"user:1")
    assert message({"value": b"a", "key": None}, key=pa.binary()).key is None


def test_headers_are_a_map_or_those_of_kafka() -> None:
    of_kafka = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    assert message({"value": b"a", "headers": [("n", "1")]}, headers=TEXTS).attributes == {"n": "1"}
    headers = [{"key": "n", "value": b"1"}, {"key": "empty", "value": None}]
    assert message({"value": b"a", "headers": headers}, headers=of_kafka).attributes == {"n": "1", "empty": ""}
    with pytest.raises(ConnectorError, match="header n is no text, and attributes are"):
        message({"value": b"a", "headers": [{"key": "n", "value": b"\xff"}]}, headers=of_kafka)


def test_a_partition_goes_into_the_envelope() -> None:
    kind = pa.struct([("tenant_id", pa.string()), ("run_id", pa.string()), ("retry_policy", POLICY)])
    policy = {"max_attempts": 3, "backoff_ms": None}
    row = {"value": b"a", "partition": 2, "envelope": {"tenant_id": "acme", "run_id": None, "retry_policy": policy}}
    envelope = message(row, partition=pa.int32(), envelope=kind).envelope
    assert envelope is not None
    assert (envelope.partition_override, envelope.tenant_id, envelope.run_id) == (2, "acme", None)
    assert envelope.retry_policy is not None
    assert (envelope.retry_policy.max_attempts, envelope.retry_policy.backoff_ms) == (3, None)


def test_a_row_without_a_value_or_a_topic_is_refused() -> None:
    with pytest.raises(ConnectorError, match="a row for orders has no value"):
        requests([{"value": None}])
    with pytest.raises(ConnectorError, match="a row has no topic, and there is no option topic"):
        requests([{"value": b"a", "topic": None}], None, topic=pa.string())


def test_an_envelope_that_cannot_be_is_refused() -> None:
    kind = pa.struct([("tenant_id", pa.int64())])
    with pytest.raises(ConnectorError, match="an envelope cannot be right"):
        message({"value": b"a", "envelope": {"tenant_id": 5}}, envelope=kind)


# Columns


def checked(option: str | None, /, **columns: pa.DataType) -> None:
    check_columns(from_arrow_schema(pa.schema(columns.items())), option)


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"colour": pa.string()}, "a message has no column colour: select only what is to be written"),
        ({"value": pa.int32()}, "column value is int: it must be binary or string"),
        ({"partition": pa.string()}, "column partition is string: it must be int"),
        ({"headers": pa.map_(pa.string(), pa.int32())}, "column headers is map<string,int>: it must be map<string,str"),
        ({"envelope": pa.struct([("offset", pa.int64())])}, "it must be a struct of what a producer may set"),
    ],
)
def test_columns_that_cannot_be_written_are_refused(columns: dict[str, pa.DataType], reason: str) -> None:
    with pytest.raises(ConnectorError, match=reason):
        checked("orders", **({"value": pa.string()} | columns))


def test_every_message_has_a_value_and_somewhere_to_go() -> None:
    with pytest.raises(ConnectorError, match="there is no column value, which every message has: there are key"):
        checked("orders", key=pa.string())
    with pytest.raises(ConnectorError, match="nobody says where the rows go"):
        checked(None, value=pa.string())
    checked(None, value=pa.string(), topic=pa.string(), headers=TEXTS)
