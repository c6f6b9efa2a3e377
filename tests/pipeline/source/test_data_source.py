"""Reading topics with Spark, in batches and in streams."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from slipstream.client import Client
from slipstream.testing import MemoryBroker
from tests.pipeline.source.messages import fill, numbered


def read(spark: SparkSession, broker: MemoryBroker, **options: Any) -> DataFrame:
    return spark.read.format("slipstream").options(url=broker.url, **options).load()


def values(frame: DataFrame) -> list[str]:
    found = (bytes(row.value).decode() for row in frame.select("value").collect())
    return sorted(found, key=lambda text: int(text[1:]))


def stream(spark: SparkSession, broker: MemoryBroker, checkpoint: Path, **options: Any) -> list[list[str]]:
    """Runs a query to its end; returns the values of each of its batches."""
    batches: list[list[str]] = []
    frame = spark.readStream.format("slipstream").options(url=broker.url, **options).load()
    query = (
        frame.writeStream.foreachBatch(lambda batch, _: batches.append(values(batch)))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return batches


def test_a_topic_is_a_frame(spark: SparkSession, broker: MemoryBroker, client: Client) -> None:
    client.create_topic("orders", 3)
    fill(client, "orders", 100)
    client.produce("orders", "v100", attributes={"colour": "red"}, tenant_id="acme", labels={"a": "b"})
    frame = read(spark, broker, subscribe="orders", includeHeaders=True, includeEnvelope=True, minPartitions=3)
    assert values(frame) == numbered(0, 101)
    assert frame.rdd.getNumPartitions() == 3
    row = frame.where("offset = 100").first()
    assert row is not None
    assert (bytes(row.key), row.topic, row.partition, row.headers) == (b"", "orders", 0, {"colour": "red"})
    assert (row.envelope.tenant_id, row.envelope.labels, row.envelope.dlq) == ("acme", {"a": "b"}, None)


def test_a_frame_has_the_columns_of_the_schema(spark: SparkSession, broker: MemoryBroker) -> None:
    """As Spark writes them; headers and envelope only who asks for them."""
    frame = read(spark, broker, subscribe="orders")
    assert [(field.name, field.dataType.simpleString()) for field in frame.schema][:6] == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
    ]
    assert not frame.columns[6:]
    assert read(spark, broker, subscribe="orders", includeEnvelope="true").columns[6:] == ["envelope", "routing"]
    assert read(spark, broker, subscribe="orders", includeHeaders="true").columns[6] == "headers"


def test_what_cannot_be_right_is_refused_when_it_is_loaded(spark: SparkSession, broker: MemoryBroker) -> None:
    with pytest.raises(PySparkException, match="there is no option subscirbe: is subscribe meant"):
        read(spark, broker, subscirbe="orders")


def test_the_ranges_say_what_the_messages_are_in(spark: SparkSession, broker: MemoryBroker, client: Client) -> None:
    client.create_topic("orders", 2)
    fill(client, "orders", 100)
    rows = read(spark, broker, subscribe="orders", content="ranges").collect()
    incarnation = client.topic("orders").id
    assert sorted(tuple(row) for row in rows) == [
        ("orders", incarnation, 0, 0, 100),
        ("orders", incarnation, 1, 0, 100),
    ]


def test_a_stream_goes_on_where_it_was(
    spark: SparkSession, broker: MemoryBroker, client: Client, tmp_path: Path
) -> None:
    client.create_topic("orders", 3)
    fill(client, "orders", 100)
    options = {"subscribePattern": "ord.*", "startingOffsets": "earliest", "maxOffsetsPerTrigger": 60}
    assert [len(batch) for batch in stream(spark, broker, tmp_path, **options)] == [60, 40]
    fill(client, "orders", 10, first=100)
    client.create_topic("ordinary")
    fill(client, "ordinary", 5, first=110)
    assert stream(spark, broker, tmp_path, **options) == [numbered(100, 115)]


def test_a_batch_that_is_repeated_is_the_same(
    spark: SparkSession, broker: MemoryBroker, client: Client, tmp_path: Path
) -> None:
    """Also the first, which began where the topic ended then."""
    client.create_topic("orders")
    fill(client, "orders", 20)
    first = stream(spark, broker, tmp_path, subscribe="orders", startingOffsets='{"orders": 10}')
    assert first == [numbered(10, 20)]
    fill(client, "orders", 10, first=20)
    for name in ("0", ".0.crc"):
        (tmp_path / "commits" / name).unlink(missing_ok=True)
    again = stream(spark, broker, tmp_path, subscribe="orders", startingOffsets="latest")
    assert again == [numbered(10, 20), numbered(20, 30)]
