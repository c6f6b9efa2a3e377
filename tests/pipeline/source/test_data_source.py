"""Reading topics with Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from slipstream.client import Client, compose
from slipstream.testing import MemoryBroker


@pytest.fixture
def broker() -> Iterator[MemoryBroker]:
    with MemoryBroker() as broker:
        yield broker


@pytest.fixture
def client(broker: MemoryBroker) -> Iterator[Client]:
    with broker.client() as client:
        yield client


def fill(client: Client, topic: str, count: int, first: int = 0) -> None:
    client.produce_batch(topic, [compose(f"v{n}", key=f"user:{n % 7}") for n in range(first, first + count)])


def read(spark: SparkSession, broker: MemoryBroker, **options: Any) -> DataFrame:
    return spark.read.format("slipstream").options(url=broker.url, **options).load()


def values(frame: DataFrame) -> list[str]:
    return sorted(
        (bytes(row.value).decode() for row in frame.select("value").collect()), key=lambda text: int(text[1:])
    )


def test_a_topic_is_a_frame(spark: SparkSession, broker: MemoryBroker, client: Client) -> None:
    client.create_topic("orders", 3)
    fill(client, "orders", 100)
    frame = read(spark, broker, subscribe="orders")
    assert values(frame) == [f"v{n}" for n in range(100)]
    row = frame.where("offset = 15").first()
    assert row is not None
    assert (bytes(row.key), row.topic, row.envelope) == (b"user:1", "orders", None)


def stream(spark: SparkSession, broker: MemoryBroker, target: Path, **options: Any) -> list[list[str]]:
    """Runs a query to its end; returns the values of each of its batches."""
    batches: list[list[str]] = []
    frame = spark.readStream.format("slipstream").options(url=broker.url, **options).load()
    query = (
        frame.writeStream.foreachBatch(lambda batch, _: batches.append(values(batch)))
        .option("checkpointLocation", str(target))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return batches


def test_a_stream_goes_on_where_it_was(
    spark: SparkSession, broker: MemoryBroker, client: Client, tmp_path: Path
) -> None:
    client.create_topic("orders", 3)
    fill(client, "orders", 100)
    first = stream(spark, broker, tmp_path, subscribe="orders", startingOffsets="earliest", maxOffsetsPerTrigger=40)
    assert [len(batch) for batch in first] == [40, 40, 20]
    fill(client, "orders", 10, first=100)
    second = stream(spark, broker, tmp_path, subscribe="orders", startingOffsets="earliest", maxOffsetsPerTrigger=40)
    assert second == [[f"v{n}" for n in range(100, 110)]]
    assert stream(spark, broker, tmp_path, subscribe="orders", startingOffsets="earliest") == []
