"""The log of a real server, read without Spark."""

from __future__ import annotations

import datetime as dt
import itertools
import pickle
import re
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from slipstream.api import RetryPolicyFields, TopicConfigFields
from slipstream.client import Client, compose
from slipstream.pipeline.source import LOG_SCHEMA, DataLost, Lost, Range, open_log
from slipstream.pipeline.source.broker_log import BrokerLog
from slipstream.pipeline.source.log import LOST_MAX
from slipstream.testing import MemoryBroker


@pytest.fixture
def log(broker: MemoryBroker) -> Iterator[BrokerLog]:
    with BrokerLog(broker.url) as log:
        yield log


def whole(log: BrokerLog, topic: str) -> list[Range]:
    standing = log.standing([topic])[topic]
    return [Range(topic, standing.incarnation, each.number, each.first, standing.end) for each in standing.partitions]


def rows(log: BrokerLog, *ranges: Range) -> list[dict[str, Any]]:
    batches = list(itertools.chain.from_iterable(map(log.read, ranges)))
    found: list[dict[str, Any]] = pa.Table.from_batches(batches, LOG_SCHEMA).to_pylist()
    return found


def test_a_message_comes_with_its_place_and_bytes(broker: MemoryBroker, client: Client, log: BrokerLog) -> None:
    client.create_topic("orders", 2)
    client.produce("orders", b"\xff\x00", key="user:1", attributes={"traceparent": "00-1"})
    (row,) = rows(log, *whole(log, "orders"))
    assert row == {
        "key": b"user:1",
        "value": b"\xff\x00",
        "topic": "orders",
        "partition": 1,
        "offset": 0,
        "timestamp": broker.now,
        "headers": [("traceparent", "00-1")],
        "envelope": None,
        "routing": None,
    }


def test_an_envelope_is_a_struct(broker: MemoryBroker, client: Client, log: BrokerLog) -> None:
    client.create_topic("orders")
    deadline = dt.datetime(2031, 5, 6, 7, 8, 9, 121_000, tzinfo=dt.UTC)
    client.produce("orders", "plain")
    client.produce(
        "orders",
        "enveloped",
        run_id="r",
        tenant_id="acme",
        deadline=deadline,
        labels={"a": "b"},
        retry_policy=RetryPolicyFields(max_attempts=3, backoff_ms=5),
    )
    plain, enveloped = rows(log, *whole(log, "orders"))
    assert plain["envelope"] is None
    envelope = enveloped["envelope"]
    assert {name: value for name, value in envelope.items() if value is not None} == {
        "run_id": "r",
        "tenant_id": "acme",
        "deadline": deadline,
        "labels": [("a", "b")],
        "retry_policy": {"max_attempts": 3, "backoff_ms": 5, "max_backoff_ms": 0},
    }


def test_a_dead_letter_says_where_it_came_from(broker: MemoryBroker, client: Client, log: BrokerLog) -> None:
    client.create_topic("orders")
    client.produce("orders", "bad", retry_policy=RetryPolicyFields(max_attempts=1))
    (message,) = client.fetch("orders", "g")
    message.nack("broken")
    (row,) = rows(log, *whole(log, "dlq.orders"))
    envelope = row["envelope"]
    assert envelope["dlq"] == {
        "original_topic": "orders",
        "original_partition": 0,
        "original_offset": 0,
        "group": "g",
        "attempts": 1,
        "last_error": "broken",
        "reason": "max_attempts",
        "routed_at": broker.now,
    }


def test_a_range_has_what_lies_in_it_and_no_more(client: Client, log: BrokerLog) -> None:
    client.create_topic("orders", 2)
    client.produce_batch("orders", [compose(str(n), key=f"user:{n % 5}") for n in range(100)])
    incarnation = log.standing(["orders"])["orders"].incarnation
    pieces = [Range("orders", incarnation, partition, 10, 30) for partition in (0, 1)]
    assert sorted(row["offset"] for row in rows(log, *pieces)) == list(range(10, 30))


def test_many_messages_come_in_few_batches(client: Client, log: BrokerLog) -> None:
    client.create_topic("orders")
    for _ in range(8):
        client.produce_batch("orders", [compose("x")] * 1_000)
    (asked,) = whole(log, "orders")
    assert [batch.num_rows for batch in log.read(asked)] == [8_000]


def test_what_retention_removed_is_lost_and_said_so(broker: MemoryBroker, client: Client, log: BrokerLog) -> None:
    client.create_topic("orders", config=TopicConfigFields(retention_ms=3_600_000))
    client.produce("orders", "old")
    (asked,) = whole(log, "orders")
    broker.advance(hours=3)
    client.produce("orders", "new")
    _await_removal(log)
    asked = Range("orders", asked.incarnation, 0, 0, 2)
    with pytest.raises(
        DataLost, match=r"orders/0: offset 0 is gone: retention removed .* failOnDataLoss=false"
    ) as lost:
        rows(log, asked)
    assert lost.value.lost == Lost("orders", 0, 0, 1, "retention removed them before they were read")
    assert repr(pickle.loads(pickle.dumps(lost.value))) == repr(lost.value)
    assert log.lost == [], "who is told by an error needs no note"


def test_who_does_not_mind_gets_what_is_there_and_a_warning(
    broker: MemoryBroker, client: Client, log: BrokerLog, caplog: pytest.LogCaptureFixture
) -> None:
    client.create_topic("orders", config=TopicConfigFields(retention_ms=3_600_000))
    client.produce("orders", "old")
    (asked,) = whole(log, "orders")
    broker.advance(hours=3)
    client.produce("orders", "new")
    _await_removal(log)
    with open_log({"url": broker.url, "failOnDataLoss": "false"}) as tolerant:
        found = list(tolerant.read(Range("orders", asked.incarnation, 0, 0, 2)))
    assert [batch.column("value").to_pylist() for batch in found] == [[b"new"]]
    assert re.search(r"orders/0: offset 0 is gone", caplog.text)
    assert [each.story for each in tolerant.lost] == [
        "orders/0: offset 0 is gone: retention removed them before they were read"
    ]


def test_what_is_gone_as_a_whole_is_noted(client: Client, broker: MemoryBroker, log: BrokerLog) -> None:
    client.create_topic("orders", config=TopicConfigFields(retention_ms=3_600_000))
    client.produce_batch("orders", ["old"] * 10)
    (asked,) = whole(log, "orders")
    broker.advance(hours=3)
    client.produce_batch("orders", ["new"] * 10)
    _await_removal(log)
    with BrokerLog(broker.url, fail_on_data_loss=False) as tolerant:
        assert rows(tolerant, asked) == []
        assert [(each.topic, each.partition, each.start, each.end) for each in tolerant.lost] == [("orders", 0, 0, 10)]


def test_a_topic_that_went_away_is_noted(client: Client, broker: MemoryBroker, log: BrokerLog) -> None:
    client.create_topic("orders")
    client.produce("orders", "before")
    (asked,) = whole(log, "orders")
    client.delete_topic("orders")
    with BrokerLog(broker.url, fail_on_data_loss=False) as tolerant:
        assert rows(tolerant, asked) == []
        assert tolerant.lost == [Lost("orders", 0, 0, None, "the topic was deleted")]


def test_a_log_does_not_grow_with_what_it_loses(broker: MemoryBroker) -> None:
    with BrokerLog(broker.url, fail_on_data_loss=False) as tolerant:
        for offset in range(LOST_MAX + 10):
            tolerant.lose(Lost("orders", 0, offset, offset + 1, "for a test"))
        assert len(tolerant.lost) == LOST_MAX


def _await_removal(log: BrokerLog) -> None:
    while log.standing(["orders"])["orders"].partitions[0].first == 0:
        time.sleep(0.01)


def test_a_topic_that_was_created_again_is_another(client: Client, log: BrokerLog) -> None:
    client.create_topic("orders")
    client.produce("orders", "before")
    (asked,) = whole(log, "orders")
    client.delete_topic("orders")
    with pytest.raises(DataLost, match="orders/0: what was to be read from offset 0 on is gone: the topic was deleted"):
        rows(log, asked)
    client.create_topic("orders")
    client.produce("orders", "after")
    with pytest.raises(DataLost, match=f"deleted and created again .it was {asked.incarnation}, and is "):
        rows(log, asked)


def test_topics_that_are_not_there_do_not_stand_anywhere(client: Client, log: BrokerLog) -> None:
    client.create_topic("orders")
    assert set(log.standing(["orders", "mail"])) == {"orders"}
    assert set(log.standing(None)) == {"orders"}


# What is beside a message


def test_the_largest_that_a_producer_may_say_is_read(client: Client, log: BrokerLog) -> None:
    """One message that is stored and cannot be read would stop every query on its topic."""
    most = 2**53
    far = dt.datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=dt.UTC)
    client.create_topic("orders")
    policy = RetryPolicyFields(max_attempts=most, backoff_ms=most, max_backoff_ms=most)
    client.produce("orders", "patient", retry_policy=policy, deadline=far, partition_override=0)
    (row,) = rows(log, *whole(log, "orders"))
    envelope = row["envelope"]
    assert envelope["retry_policy"] == {"max_attempts": most, "backoff_ms": most, "max_backoff_ms": most}
    assert (envelope["deadline"], envelope["partition_override"]) == (far, 0)


def test_only_the_columns_that_are_asked_for_are_there(client: Client, log: BrokerLog) -> None:
    client.create_topic("orders")
    client.produce("orders", "a", key="k", attributes={"n": "1"}, tenant_id="acme")
    (asked,) = whole(log, "orders")
    (batch,) = log.read(asked, ["value", "headers", "topic"])
    assert batch.to_pylist() == [{"value": b"a", "headers": [("n", "1")], "topic": "orders"}]
