"""Where a batch read begins and ends, without Spark."""

from __future__ import annotations

import json

import pytest

from slipstream.client import Client
from slipstream.pipeline.source.batch_reader import BatchReader
from slipstream.pipeline.source.errors import ConnectorError, InvalidOption
from slipstream.pipeline.source.options import Use, read_options
from slipstream.testing import MemoryBroker
from tests.pipeline.source.messages import fill, numbered


def read(broker: MemoryBroker, **options: str) -> list[str]:
    """The values, by offset."""
    reader = BatchReader(read_options({"url": broker.url, "subscribe": "orders", **options}, Use.BATCH))
    found: list[tuple[int, bytes]] = []
    for task in reader.partitions():
        for batch in reader.read(task):
            found += zip(batch.column("offset").to_pylist(), batch.column("value").to_pylist(), strict=True)
    return [value.decode() for _, value in sorted(found)]


@pytest.fixture
def then_ms(broker: MemoryBroker, client: Client) -> int:
    """A time; ten messages were stored an hour before it, and ten at it."""
    client.create_topic("orders", 2)
    fill(client, "orders", 10)
    broker.advance(hours=1)
    fill(client, "orders", 10, first=10)
    return round(broker.now.timestamp() * 1000)


def test_all_that_is_there_is_read(broker: MemoryBroker, then_ms: int) -> None:
    assert read(broker) == numbered(0, 20)


@pytest.mark.parametrize(
    ("ending", "end"),
    [
        ("latest", 20),
        ('{"orders": -1}', 20),
        ('{"orders": 15}', 15),
        ('{"orders": {"0": 15, "1": 15}}', 15),
        ('{"orders": 0}', 0),
    ],
)
def test_a_read_ends_before_an_offset(broker: MemoryBroker, then_ms: int, ending: str, end: int) -> None:
    assert read(broker, endingOffsets=ending) == numbered(0, end)


def test_partitions_end_where_it_is_said_of_each(broker: MemoryBroker, client: Client, then_ms: int) -> None:
    found = read(broker, endingOffsets='{"orders": {"0": 5, "1": -1}}')
    expected = [message for partition in (0, 1) for message in client.scan("orders", partition)]
    kept = [each for each in expected if each.partition == 1 or each.offset < 5]
    assert found == [each.value.decode() for each in sorted(kept, key=lambda each: each.offset)]


@pytest.mark.parametrize(
    ("ending", "reason"),
    [
        ("earliest", "endingOffsets='earliest': latest or JSON"),
        ('{"orders": -2}', "orders has -2, which is no offset"),
        ('{"orders": 21}', "endingOffsets: orders/0 has no offset 21 yet: its topic ends at 20"),
        ('{"mail": 1}', "endingOffsets says nothing of orders"),
        ('{"orders": {"0": 1}}', "endingOffsets says nothing of orders/1"),
    ],
)
def test_an_end_that_cannot_be_is_refused(broker: MemoryBroker, then_ms: int, ending: str, reason: str) -> None:
    with pytest.raises(InvalidOption, match=reason):
        read(broker, endingOffsets=ending)


def test_a_read_ends_before_a_time(broker: MemoryBroker, then_ms: int) -> None:
    assert read(broker, endingTimestamp=str(then_ms)) == numbered(0, 10)
    assert read(broker, endingTimestamp=broker.now.isoformat()) == numbered(0, 10)
    assert read(broker, endingTimestamp=str(then_ms + 1)) == numbered(0, 20)
    assert read(broker, endingTimestamp="0") == []
    by_partition = json.dumps({"orders": {"0": then_ms, "1": then_ms}})
    assert read(broker, endingOffsetsByTimestamp=by_partition) == numbered(0, 10)
    assert read(broker, endingOffsetsByTimestamp=json.dumps({"orders": then_ms})) == numbered(0, 10)


def test_a_time_that_cannot_be_is_refused(broker: MemoryBroker, then_ms: int) -> None:
    with pytest.raises(InvalidOption, match="is no time: milliseconds since 1970 are wanted"):
        read(broker, endingTimestamp=str(10**18))
    with pytest.raises(InvalidOption, match="endingTimestamp and endingOffsetsByTimestamp are both given"):
        read(broker, endingTimestamp="1", endingOffsetsByTimestamp="{}")
    with pytest.raises(InvalidOption, match="endingOffsetsByTimestamp says nothing of orders"):
        read(broker, endingOffsetsByTimestamp="{}")


def test_a_read_lies_between_two_times(broker: MemoryBroker, client: Client, then_ms: int) -> None:
    broker.advance(hours=1)
    fill(client, "orders", 10, first=20)
    later_ms = round(broker.now.timestamp() * 1000)
    assert read(broker, startingTimestamp=str(then_ms), endingTimestamp=str(later_ms)) == numbered(10, 20)
    assert read(broker, startingTimestamp=str(later_ms), endingTimestamp=str(then_ms)) == []


def test_a_topic_that_is_not_there_is_refused(broker: MemoryBroker) -> None:
    with pytest.raises(ConnectorError, match="there is no topic orders: create it"):
        read(broker)
