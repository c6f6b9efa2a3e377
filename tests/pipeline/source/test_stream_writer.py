"""Writing streams into topics, once, whatever Spark repeats."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from slipstream.client import Client
from slipstream.testing import MemoryBroker
from tests.pipeline.source.messages import fill, in_topic, numbered


def copy(spark: SparkSession, broker: MemoryBroker, checkpoint: Path, expression: str = "value") -> None:
    """From `orders` to `copies`, ten messages at a time."""
    frame = (
        spark.readStream.format("slipstream")
        .options(url=broker.url, subscribe="orders", startingOffsets="earliest", maxOffsetsPerTrigger=10)
        .load()
        .selectExpr("key", f"{expression} as value")
    )
    query = (
        frame.writeStream.format("slipstream")
        .options(url=broker.url, topic="copies", checkpointLocation=str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def forget_commit(checkpoint: Path) -> None:
    """As if Spark had died after the sink was done, and before it could note it."""
    newest = max((path for path in (checkpoint / "commits").glob("[0-9]*")), key=lambda path: int(path.name))
    newest.unlink()
    (newest.parent / f".{newest.name}.crc").unlink(missing_ok=True)


def test_a_batch_that_is_repeated_is_stored_once(
    spark: SparkSession, broker: MemoryBroker, client: Client, tmp_path: Path
) -> None:
    client.create_topic("orders", 3)
    client.create_topic("copies", 2)
    fill(client, "orders", 25)
    copy(spark, broker, tmp_path)
    assert sorted(in_topic(client, "copies")) == sorted(numbered(0, 25))
    forget_commit(tmp_path)
    fill(client, "orders", 5, first=25)
    copy(spark, broker, tmp_path)
    assert sorted(in_topic(client, "copies")) == sorted(numbered(0, 30))


def test_a_batch_that_fails_leaves_nothing(
    spark: SparkSession, broker: MemoryBroker, client: Client, tmp_path: Path
) -> None:
    client.create_topic("orders", 3)
    client.create_topic("copies")
    fill(client, "orders", 15)
    failing = "if(offset = 12, cast(raise_error('broken') as binary), value)"
    with pytest.raises(StreamingQueryException, match="broken"):
        copy(spark, broker, tmp_path, failing)
    assert sorted(in_topic(client, "copies")) == sorted(numbered(0, 10))
    copy(spark, broker, tmp_path)
    assert sorted(in_topic(client, "copies")) == sorted(numbered(0, 15))
