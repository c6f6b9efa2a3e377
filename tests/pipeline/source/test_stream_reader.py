"""The driver's side of a stream, without Spark: how far it reads, and what it says of what is gone."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from slipstream.api import TopicConfigFields
from slipstream.client import Client
from slipstream.pipeline.source.errors import DataLost, InvalidOption
from slipstream.pipeline.source.offsets import from_dict
from slipstream.pipeline.source.options import Use, read_options
from slipstream.pipeline.source.reading import Task
from slipstream.pipeline.source.stream_reader import StreamReader
from slipstream.testing import MemoryBroker
from tests.pipeline.source.messages import fill, numbered


class Query:
    """What Spark does with a reader: it keeps where it has come to, and nothing else."""

    def __init__(self, broker: MemoryBroker, **options: str) -> None:
        self.broker = broker
        self.options = options
        self.at: dict[str, Any] | None = None
        self.reader = self.new_reader()

    def new_reader(self) -> StreamReader:
        return StreamReader(read_options({"url": self.broker.url, **self.options}, Use.STREAM))

    def restart(self, **options: str) -> None:
        """Another process, with the same checkpoint."""
        self.reader.stop()
        self.options |= options
        self.reader = self.new_reader()

    def start(self) -> dict[str, Any]:
        if self.at is None:
            first = self.reader.initialOffset()
            assert self.reader.initialOffset() == first
            self.at = first
        return self.at

    def plan(self) -> tuple[dict[str, Any], dict[str, Any]]:
        start = self.start()
        return start, as_kept(self.reader.latestOffset(start, self.reader.getDefaultReadLimit()))

    def batch(self) -> list[str]:
        """The values of the next batch, in order."""
        start, end = self.plan()
        self.at = end
        return self.read(start, end)

    def read(self, start: dict[str, Any], end: dict[str, Any]) -> list[str]:
        tasks = self.reader.partitions(start, end)
        elsewhere = self.new_reader()
        found: list[tuple[int, bytes]] = []
        for task in tasks:
            for batch in elsewhere.read(task):
                found += zip(batch.column("offset").to_pylist(), batch.column("value").to_pylist(), strict=True)
        return [value.decode() for _, value in sorted(found)]


def as_kept(offset: dict[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = json.loads(json.dumps(offset))
    return kept


NewQuery = Callable[..., Query]


@pytest.fixture
def new_query(broker: MemoryBroker) -> Iterator[NewQuery]:
    """Queries on the broker, ended with the test."""
    queries: list[Query] = []

    def make(**options: str) -> Query:
        queries.append(Query(broker, **options))
        return queries[-1]

    yield make
    for query in queries:
        query.reader.stop()


@pytest.fixture
def query(new_query: NewQuery) -> Query:
    return new_query(subscribe="orders", startingOffsets="earliest")


def test_batch_after_batch_has_everything_once(client: Client, query: Query) -> None:
    client.create_topic("orders", 3)
    fill(client, "orders", 50)
    assert query.batch() == numbered(0, 50)
    fill(client, "orders", 20, first=50)
    assert query.batch() == numbered(50, 70)


def test_where_nothing_is_new_the_offset_stays_the_same_text(client: Client, query: Query) -> None:
    client.create_topic("orders", 2)
    assert len({json.dumps(offset) for offset in query.plan()}) == 1
    fill(client, "orders", 5)
    query.batch()
    assert len({json.dumps(offset) for offset in query.plan()}) == 1


def test_a_reader_that_waits_is_woken_by_a_message(client: Client, query: Query) -> None:
    client.create_topic("orders", 2)
    query.batch()
    thread = threading.Thread(target=fill, args=(client, "orders", 5))
    thread.start()
    found: list[str] = []
    while not found:
        found = query.batch()
    thread.join()
    assert found == numbered(0, 5)


def test_latest_is_where_the_topic_ended_when_the_query_began(new_query: NewQuery, client: Client) -> None:
    client.create_topic("orders", 3)
    fill(client, "orders", 10)
    query = new_query(subscribe="orders")
    query.start()
    fill(client, "orders", 10, first=10)
    first = query.plan()
    query.restart()
    moved = query.reader.initialOffset()
    # Spark has not kept where the query began, but how far its first batch goes.
    assert query.read(moved, first[1]) == numbered(10, 20)


def test_a_limit_is_kept_over_all_topics_and_partitions(client: Client, new_query: NewQuery) -> None:
    client.create_topic("orders", 3)
    client.create_topic("mail", 2)
    fill(client, "orders", 90)
    fill(client, "mail", 10, first=90)
    query = new_query(subscribe="orders,mail", startingOffsets="earliest", maxOffsetsPerTrigger="40")
    batches = [query.batch() for _ in range(3)]
    assert [len(batch) for batch in batches] == [40, 40, 20]
    assert sorted(value for batch in batches for value in batch) == sorted(numbered(0, 100))
    assert query.reader.latestOffset(query.start(), ReadAllAvailable()) == query.at


def test_too_little_waits_until_the_delay_is_over(client: Client, new_query: NewQuery) -> None:
    client.create_topic("orders")
    fill(client, "orders", 5)
    options = {"subscribe": "orders", "startingOffsets": "earliest", "minOffsetsPerTrigger": "10"}
    query = new_query(**options)
    assert query.batch() == []
    fill(client, "orders", 5, first=5)
    assert query.batch() == numbered(0, 10)
    fill(client, "orders", 1, first=10)
    assert query.batch() == []
    query.restart(maxTriggerDelay="0ms")
    assert query.batch() == numbered(10, 11)


def test_available_now_reads_to_where_it_was_then(client: Client, query: Query) -> None:
    client.create_topic("orders")
    fill(client, "orders", 10)
    query.reader.prepareForTriggerAvailableNow()
    fill(client, "orders", 10, first=10)
    assert query.batch() == numbered(0, 10)
    assert len({json.dumps(offset) for offset in query.plan()}) == 1


def test_partitions_that_are_added_are_read_from_their_beginning(client: Client, query: Query) -> None:
    client.create_topic("orders", 1)
    fill(client, "orders", 10)
    query.batch()
    client.change_topic("orders", partitions=4)
    fill(client, "orders", 20, first=10)
    assert query.batch() == numbered(10, 30)
    assert sorted(from_dict(query.start()).topics["orders"].partitions) == [0, 1, 2, 3]


def test_topics_that_come_later_are_read_from_their_beginning(new_query: NewQuery, client: Client) -> None:
    query = new_query(subscribePattern="ord.*")
    client.create_topic("mail")
    query.start()
    client.create_topic("orders")
    fill(client, "orders", 5)
    fill(client, "mail", 5)
    assert query.batch() == numbered(0, 5)


def test_a_topic_that_is_not_there_yet_is_waited_for_and_said_so(
    client: Client, query: Query, caplog: pytest.LogCaptureFixture
) -> None:
    assert query.batch() == []
    assert query.batch() == []
    assert caplog.text.count("there is no topic orders yet: it is read from its beginning once it is there") == 1
    client.create_topic("orders")
    fill(client, "orders", 5)
    assert query.batch() == numbered(0, 5)


def test_only_what_was_assigned_is_read(new_query: NewQuery, client: Client) -> None:
    client.create_topic("orders", 3)
    fill(client, "orders", 30)
    query = new_query(assign='{"orders": [1]}', startingOffsets="earliest")
    expected = [message.value.decode() for message in client.scan("orders", 1)]
    assert query.batch() == expected


# Where to begin


@pytest.mark.parametrize(
    ("starting", "expected"),
    [
        ('{"orders": 23}', numbered(23, 30)),
        ('{"orders": {"0": 23, "1": 23}}', numbered(23, 30)),
        ('{"orders": -2}', numbered(0, 30)),
        ('{"orders": -1}', []),
    ],
)
def test_a_query_begins_at_an_offset(new_query: NewQuery, client: Client, starting: str, expected: list[str]) -> None:
    client.create_topic("orders", 2)
    fill(client, "orders", 30)
    query = new_query(subscribe="orders", startingOffsets=starting)
    assert query.batch() == expected


@pytest.mark.parametrize(
    ("starting", "reason"),
    [
        ('{"mail": 1}', "startingOffsets says nothing of orders"),
        ('{"orders": 1, "mail": 1}', "startingOffsets speaks of mail, but it is not read"),
        ('{"orders": {"0": 1}}', "says nothing of orders/1: name every partition, or the topic alone"),
        ('{"orders": {"0": 1, "1": 1, "9": 1}}', "speaks of orders/9, which is not there or not read"),
        ('{"orders": 31}', "orders/0 has no offset 31 yet: its topic ends at 30"),
    ],
)
def test_an_offset_that_cannot_be_is_refused(new_query: NewQuery, client: Client, starting: str, reason: str) -> None:
    client.create_topic("orders", 2)
    fill(client, "orders", 30)
    query = new_query(subscribe="orders", startingOffsets=starting)
    with pytest.raises(InvalidOption, match=reason):
        query.start()


@pytest.mark.parametrize("option", ["startingTimestamp", "startingOffsetsByTimestamp"])
def test_a_query_begins_at_a_time(broker: MemoryBroker, new_query: NewQuery, client: Client, option: str) -> None:
    client.create_topic("orders", 2)
    fill(client, "orders", 10)
    broker.advance(hours=1)
    then_ms = round(broker.now.timestamp() * 1000)
    fill(client, "orders", 10, first=10)
    said = str(then_ms) if option == "startingTimestamp" else json.dumps({"orders": {"0": then_ms, "1": then_ms}})
    query = new_query(subscribe="orders", **{option: said})
    assert query.batch() == numbered(10, 20)


# What is gone


def overtake(broker: MemoryBroker, client: Client) -> None:
    """Ten messages that were read, ten that retention takes, and ten that are there."""
    fill(client, "orders", 10, first=10)
    broker.advance(hours=3)
    fill(client, "orders", 10, first=20)
    while client.topic("orders").partitions[0].first_offset < 20:
        broker.advance(minutes=1)


@pytest.fixture
def overtaken(broker: MemoryBroker, client: Client, query: Query) -> Query:
    """A query that was stopped for longer than messages are kept."""
    client.create_topic("orders", config=TopicConfigFields(retention_ms=3_600_000))
    fill(client, "orders", 10)
    query.batch()
    overtake(broker, client)
    query.restart()
    return query


def test_retention_that_overtook_a_query_is_not_passed_over(overtaken: Query) -> None:
    said = r"orders/0: offsets 10 to 19 are gone: retention removed them .* Set failOnDataLoss=false"
    with pytest.raises(DataLost, match=said):
        overtaken.batch()


def test_who_does_not_mind_goes_on_and_is_warned(overtaken: Query, caplog: pytest.LogCaptureFixture) -> None:
    overtaken.restart(failOnDataLoss="false")
    assert overtaken.batch() == numbered(20, 30)
    assert "orders/0: offsets 10 to 19 are gone: retention removed them before they were read; going on" in caplog.text
    caplog.clear()
    overtaken.batch()
    assert "gone" not in caplog.text


def plan_and_overtake(broker: MemoryBroker, client: Client, query: Query) -> tuple[dict[str, Any], dict[str, Any]]:
    """A batch that is planned, and then there is nothing left of it."""
    client.create_topic("orders", config=TopicConfigFields(retention_ms=3_600_000))
    fill(client, "orders", 10)
    query.batch()
    fill(client, "orders", 10, first=10)
    start, end = query.plan()
    overtake(broker, client)
    return start, end


def test_a_batch_that_was_planned_before_retention_came_says_so(
    broker: MemoryBroker, client: Client, query: Query
) -> None:
    start, end = plan_and_overtake(broker, client, query)
    query.restart()
    with pytest.raises(DataLost, match="orders/0: offsets 10 to 19 are gone"):
        query.read(start, end)
    query.restart(failOnDataLoss="false")
    assert query.read(start, end) == []


def test_who_gets_ranges_sees_where_they_begin_although_nothing_of_them_is_left(
    broker: MemoryBroker, client: Client, query: Query
) -> None:
    start, end = plan_and_overtake(broker, client, query)
    query.restart(failOnDataLoss="false", content="ranges")
    (task,) = query.reader.partitions(start, end)
    assert isinstance(task, Task)
    assert [(each.topic, each.partition, each.start, each.end) for each in task.ranges] == [("orders", 0, 20, 20)]
    (batch,) = query.reader.read(task)
    assert batch.to_pylist()[0]["start"] == 20


def test_a_topic_that_was_created_again_is_not_taken_for_the_old_one(
    client: Client, query: Query, caplog: pytest.LogCaptureFixture
) -> None:
    client.create_topic("orders")
    fill(client, "orders", 10)
    query.batch()
    client.delete_topic("orders")
    client.create_topic("orders")
    fill(client, "orders", 20)
    query.restart()
    said = r"orders/0: what was to be read from offset 10 on is gone: the topic was deleted and created again"
    with pytest.raises(DataLost, match=said):
        query.batch()
    query.restart(failOnDataLoss="false")
    assert query.batch() == numbered(0, 20)
    assert re.search(said, caplog.text)


def test_a_topic_that_was_deleted_is_missed(client: Client, query: Query, caplog: pytest.LogCaptureFixture) -> None:
    client.create_topic("orders")
    fill(client, "orders", 10)
    query.batch()
    client.delete_topic("orders")
    query.restart()
    with pytest.raises(DataLost, match=r"orders/0: .* the topic was deleted"):
        query.batch()
    query.restart(failOnDataLoss="false")
    assert query.batch() == []
    client.create_topic("orders")
    fill(client, "orders", 5)
    assert query.batch() == numbered(0, 5)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"subscribePattern": "ord.*|mail"}, {"subscribePattern": "ord.*"}),
        ({"subscribe": "orders,mail"}, {"subscribe": "orders"}),
        ({"assign": '{"orders": [0], "mail": [0]}'}, {"assign": '{"orders": [0]}'}),
    ],
)
def test_a_topic_that_is_left_out_is_not_lost(
    client: Client,
    new_query: NewQuery,
    before: dict[str, str],
    after: dict[str, str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "slipstream.pipeline")
    client.create_topic("orders")
    client.create_topic("mail")
    fill(client, "orders", 5)
    fill(client, "mail", 5, first=5)
    query = new_query(startingOffsets="earliest", **before)
    assert sorted(query.batch()) == numbered(0, 10)
    fill(client, "mail", 5, first=10)
    fill(client, "orders", 5, first=15)
    query.restart(**after)
    assert query.batch() == numbered(15, 20)
    assert set(from_dict(query.start()).topics) == {"orders"}
    assert query.batch() == []
    assert caplog.text.count("mail is read no more: the options leave it out") == 1
    assert "gone" not in caplog.text


def test_a_batch_that_was_planned_with_a_topic_that_is_now_left_out_has_the_others(
    client: Client, new_query: NewQuery
) -> None:
    client.create_topic("orders")
    client.create_topic("mail")
    query = new_query(subscribePattern="orders|mail", startingOffsets="earliest")
    fill(client, "orders", 5)
    fill(client, "mail", 5, first=5)
    start, end = query.plan()
    query.restart(subscribePattern="orders")
    assert query.read(start, end) == numbered(0, 5)


def test_a_topic_that_is_still_wanted_and_was_deleted_is_missed_beside_one_that_is_left_out(
    client: Client, new_query: NewQuery
) -> None:
    for name in ("orders", "mail"):
        client.create_topic(name)
        fill(client, name, 5)
    query = new_query(subscribePattern="orders|mail", startingOffsets="earliest")
    query.batch()
    client.delete_topic("orders")
    query.restart(subscribePattern="orders")
    with pytest.raises(DataLost, match=r"orders/0: .* the topic was deleted"):
        query.batch()


# For people


def test_how_far_a_query_could_be_is_reported(client: Client, query: Query) -> None:
    assert query.reader.reportLatestOffset() is None
    client.create_topic("orders", 2)
    fill(client, "orders", 10)
    query.batch()
    reported = query.reader.reportLatestOffset()
    assert reported is not None
    assert from_dict(reported).topics["orders"].partitions == {0: 10, 1: 10}


def test_a_task_shows_no_more_than_what_it_reads(client: Client, query: Query) -> None:
    client.create_topic("orders")
    fill(client, "orders", 1)
    start, end = query.plan()
    (task,) = query.reader.partitions(start, end)
    assert isinstance(task, Task)
    assert repr(task).startswith("Task([Range(topic='orders'")
