"""Writing frames into topics."""

from __future__ import annotations

import datetime as dt

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from slipstream.client import Client
from slipstream.pipeline.source.batch_writer import BatchWriter, WrittenRows
from slipstream.pipeline.source.options import write_options
from slipstream.testing import MemoryBroker
from tests.pipeline.source.messages import in_topic


def test_rows_become_messages(spark: SparkSession, broker: MemoryBroker, client: Client) -> None:
    client.create_topic("orders", 3)
    client.create_topic("mail")
    deadline = dt.datetime(2031, 1, 2, tzinfo=dt.UTC)
    rows = [
        ("orders", "two books", "user:1", None, {"colour": "red"}, {"tenant_id": "acme", "deadline": deadline}),
        ("orders", "one lamp", None, 2, None, None),
        ("mail", "hello", None, None, None, None),
    ]
    schema = (
        "topic string, value string, key string, partition int, headers map<string,string>, "
        "envelope struct<tenant_id: string, deadline: timestamp>"
    )
    spark.createDataFrame(rows, schema).write.format("slipstream").mode("append").options(url=broker.url).save()
    (books,) = client.read("orders", 1).messages
    assert (books.value, books.key, books.attributes) == (b"two books", b"user:1", {"colour": "red"})
    assert books.envelope is not None
    assert (books.envelope.tenant_id, books.envelope.deadline) == ("acme", deadline)
    assert [message.value for message in client.read("orders", 2).messages] == [b"one lamp"]
    assert in_topic(client, "mail") == ["hello"]


def test_a_topic_is_not_overwritten(spark: SparkSession, broker: MemoryBroker, client: Client) -> None:
    client.create_topic("orders")
    frame = spark.createDataFrame([("a",)], "value string")
    with pytest.raises(PySparkException, match=r'not overwritten: write with mode\("append"\)'):
        frame.write.format("slipstream").mode("overwrite").options(url=broker.url, topic="orders").save()


def test_what_is_no_message_is_refused_before_anything_is_written(spark: SparkSession, broker: MemoryBroker) -> None:
    frame = spark.createDataFrame([("a", 1)], "value string, offset bigint")
    with pytest.raises(PySparkException, match="a message has no column offset: select only what is to be written"):
        frame.write.format("slipstream").mode("append").options(url=broker.url, topic="orders").save()


def test_a_frame_that_was_not_written_whole_is_said(broker: MemoryBroker, caplog: pytest.LogCaptureFixture) -> None:
    """What Spark's driver does when a task has failed and others were done."""
    sink = BatchWriter(write_options({"url": broker.url, "topic": "orders"}))
    sink.abort([WrittenRows(7), None, WrittenRows(3)])
    assert "the frame was not written whole: 10 messages of tasks that were done are stored" in caplog.text
