"""Writing streams into topics, once, whatever Spark repeats."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from slipstream.client import Client
from slipstream.pipeline.source.options import write_options
from slipstream.pipeline.source.stream_writer import StagedRows, StreamWriter
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


# Room at the server


def writer_of(checkpoint: Path) -> str:
    return f"spark:{json.loads((checkpoint / 'metadata').read_text())['id']}"


def test_a_task_that_fails_takes_back_what_it_staged(
    spark: SparkSession, broker: MemoryBroker, client: Client, tmp_path: Path
) -> None:
    client.create_topic("orders")
    client.create_topic("copies")
    fill(client, "orders", 5)
    # Of 400 KB each, so that there are requests before the one that cannot be made.
    failing = "if(offset = 4, null, cast(repeat('x', 400000) as binary))"
    with pytest.raises(StreamingQueryException, match="has no value"):
        copy(spark, broker, tmp_path, failing)
    assert client.unstage(writer_of(tmp_path), 0).parts == 0


def test_a_batch_that_fails_makes_room_for_its_repetition(broker: MemoryBroker, client: Client) -> None:
    """What Spark's driver does when a task has failed and others were done."""
    client.create_topic("copies")
    parts = [client.stage("copies", ["a"], writer="spark:q", sequence=7, attempt="run") for _ in range(2)]
    sink = StreamWriter(write_options({"url": broker.url, "topic": "copies"}))
    sink.abort([None, StagedRows("spark:q", [parts[0].staged]), None], 7)
    assert client.unstage("spark:q", 7).parts == 0
    sink.abort([None], 7)


def test_what_a_killed_run_has_left_does_not_stand_in_the_way_of_the_next(spark: SparkSession, tmp_path: Path) -> None:
    with MemoryBroker(max_staged_bytes=2_000) as broker, broker.client() as client:
        client.create_topic("orders")
        client.create_topic("copies")
        fill(client, "orders", 10)
        copy(spark, broker, tmp_path)
        client.stage("copies", ["x" * 1_900], writer=writer_of(tmp_path), sequence=1, attempt="killed")
        fill(client, "orders", 10, first=10)
        copy(spark, broker, tmp_path)
        assert sorted(in_topic(client, "copies")) == sorted(numbered(0, 20))
