"""Streams of a real NATS server, read without Spark and with it."""

from __future__ import annotations

import asyncio
import datetime as dt
import itertools
import os
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import nats
import pyarrow as pa
import pytest
from nats.js import JetStreamContext
from nats.js.api import StreamConfig
from pyspark.sql import SparkSession

from slipstream.bus.drivers.nats.headers import to_headers
from slipstream.bus.drivers.nats.names import stream_name
from slipstream.pipeline.source import LOG_SCHEMA, DataLost, Range, open_log
from slipstream.pipeline.source.log import Log
from slipstream.pipeline.source.nats_log import NatsLog
from slipstream.pipeline.source.standing import Standing
from tests.bus.sites.nats import NatsSite

_numbers = itertools.count()


@pytest.fixture(scope="module")
def site() -> Iterator[NatsSite]:
    site = NatsSite()
    yield site
    site.close()


Do = Callable[[Callable[[JetStreamContext], Coroutine[Any, Any, Any]]], Any]


@pytest.fixture
def do(site: NatsSite) -> Do:
    """Something with JetStream, on a connection of its own."""

    def run(work: Callable[[JetStreamContext], Coroutine[Any, Any, Any]]) -> Any:
        async def connected() -> Any:
            client = await nats.connect(site.url)
            try:
                return await work(client.jetstream())
            finally:
                await client.close()

        return asyncio.run(connected())

    return run


@pytest.fixture
def topic(do: Do) -> str:
    name = f"dev.orders-{os.getpid()}-{next(_numbers)}"
    create(do, name)
    return name.removeprefix("dev.")


def create(do: Do, subject: str, **limits: Any) -> None:
    do(lambda js: js.add_stream(StreamConfig(name=stream_name(subject), subjects=[subject], **limits)))


def publish(do: Do, topic: str, count: int, first: int = 0) -> None:
    async def work(js: JetStreamContext) -> None:
        for n in range(first, first + count):
            headers = to_headers({"n": str(n), "grüße": "ü"}, f"user:{n % 3}", f"{topic}-{n}")
            await js.publish(f"dev.{topic}", f"v{n}".encode(), headers=headers)

    do(work)


@pytest.fixture
def log(site: NatsSite) -> Iterator[Log]:
    with open_log({"bus": "nats", "natsUrl": site.url, "busPrefix": "dev."}) as log:
        yield log


def whole(log: Log, topic: str) -> Range:
    standing = log.standing([topic])[topic]
    return Range(topic, standing.incarnation, 0, standing.partitions[0].first, standing.end)


def rows(log: Log, asked: Range) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pa.Table.from_batches(list(log.read(asked)), LOG_SCHEMA).to_pylist()
    return found


def test_a_stream_is_a_topic_with_one_partition(log: Log, do: Do, topic: str) -> None:
    publish(do, topic, 3)
    found = rows(log, whole(log, topic))
    assert [(row["offset"], row["value"], row["key"]) for row in found] == [
        (1, b"v0", b"user:0"),
        (2, b"v1", b"user:1"),
        (3, b"v2", b"user:2"),
    ]
    assert (found[0]["topic"], found[0]["partition"], found[0]["envelope"]) == (topic, 0, None)
    assert dict(found[0]["headers"]) == {"n": "0", "grüße": "ü"}
    assert abs(found[0]["timestamp"] - dt.datetime.now(dt.UTC)) < dt.timedelta(hours=1)


def test_a_range_has_what_lies_in_it_and_no_more(log: Log, do: Do, topic: str) -> None:
    publish(do, topic, 20)
    asked = whole(log, topic)
    part = Range(topic, asked.incarnation, 0, 5, 9)
    assert [row["offset"] for row in rows(log, part)] == [5, 6, 7, 8]
    assert rows(log, Range(topic, asked.incarnation, 0, 5, 5)) == []


def test_many_messages_come_in_one_batch(log: Log, do: Do, topic: str) -> None:
    publish(do, topic, 2_500)
    assert [batch.num_rows for batch in log.read(whole(log, topic))] == [2_500]


def test_an_empty_stream_has_nothing_and_has_lost_nothing(log: Log, topic: str) -> None:
    asked = whole(log, topic)
    assert rows(log, Range(topic, asked.incarnation, 0, 0, 1)) == []


def test_streams_are_found_by_their_subjects(log: Log, do: Do, topic: str) -> None:
    create(do, f"other.{topic}")
    found = log.standing(None)
    assert topic in found
    assert not any(name.startswith("other.") for name in found)
    assert log.standing(["nowhere"]) == {}


def test_the_first_since_a_time(log: Log, do: Do, topic: str) -> None:
    publish(do, topic, 3)
    second = rows(log, whole(log, topic))[1]["timestamp"]

    def since(time: dt.datetime) -> int | None:
        return log.standing([topic], since=time)[topic].partitions[0].since

    assert since(second - dt.timedelta(hours=1)) == 1
    assert since(second) in {1, 2}  # times are told in milliseconds
    assert since(second + dt.timedelta(hours=1)) == 4


class Looks:
    """Counts how often a log looks at the streams, and says when it has."""

    def __init__(self, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
        assert isinstance(log, NatsLog)
        self.count = 0
        self.first = threading.Event()
        look = log._look

        async def counted(topics: Sequence[str] | None, since: dt.datetime | None) -> Standing:
            found = await look(topics, since)
            self.count += 1
            self.first.set()
            return found

        monkeypatch.setattr(log, "_look", counted)


@pytest.fixture(params=["dev.", ""])
def anywhere(request: pytest.FixtureRequest, site: NatsSite) -> Iterator[Log]:
    """With a prefix and without: then every subject of the server may be a topic."""
    with open_log({"bus": "nats", "natsUrl": site.url, "busPrefix": request.param}) as log:
        yield log


@pytest.mark.parametrize("is_named", [True, False])
def test_who_waits_is_woken_by_a_message(
    anywhere: Log, do: Do, topic: str, is_named: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = next(name for name in anywhere.standing(None) if name.endswith(topic))
    asked = [name] if is_named else None
    before = anywhere.standing(asked)
    looks = Looks(anywhere, monkeypatch)
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(anywhere.standing, asked, known=before, wait_ms=600_000)
        assert looks.first.wait(60)
        publish(do, topic, 1)
        # What was heard may not be stored yet.
        after = waiting.result(60)
    while after[name].end < 2:
        after = anywhere.standing(asked, known=before, wait_ms=10)
    assert after[name].end == 2


def test_what_is_asked_of_the_server_is_nothing_new(
    anywhere: Log, do: Do, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also not what looking itself asks: who took it for that would look again and again, and never wait."""
    before = anywhere.standing(None)
    assert anywhere.standing(None, known=before, wait_ms=10) == before
    looks = Looks(anywhere, monkeypatch)
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(anywhere.standing, None, known=before, wait_ms=600_000)
        assert looks.first.wait(60)
        for _ in range(20):
            do(lambda js: js.streams_info())
        seen = looks.count
        publish(do, topic, 1)
        waiting.result(60)
    assert seen == 1


def test_what_limits_removed_is_lost_and_said_so(
    log: Log, do: Do, site: NatsSite, caplog: pytest.LogCaptureFixture
) -> None:
    topic = f"few-{next(_numbers)}"
    create(do, f"dev.{topic}", max_msgs=5)
    publish(do, topic, 3)
    asked = whole(log, topic)
    publish(do, topic, 5, first=3)
    asked = Range(topic, asked.incarnation, 0, 1, 9)
    with pytest.raises(DataLost, match=f"{topic}/0: offsets 1 to 3 are gone: retention removed them"):
        rows(log, asked)
    options = {"bus": "nats", "natsUrl": site.url, "busPrefix": "dev.", "failOnDataLoss": "false"}
    with open_log(options) as tolerant:
        assert [row["offset"] for row in rows(tolerant, asked)] == [4, 5, 6, 7, 8]
        assert [(each.topic, each.partition, each.start, each.end) for each in tolerant.lost] == [(topic, 0, 1, 4)]
    assert "offsets 1 to 3 are gone" in caplog.text


def test_a_stream_that_was_made_again_is_another(log: Log, do: Do, topic: str) -> None:
    publish(do, topic, 3)
    asked = whole(log, topic)
    do(lambda js: js.delete_stream(stream_name(f"dev.{topic}")))
    with pytest.raises(DataLost, match="the topic was deleted"):
        rows(log, asked)
    create(do, f"dev.{topic}")
    publish(do, topic, 3)
    with pytest.raises(DataLost, match="deleted and created again"):
        rows(log, asked)


def test_spark_reads_a_stream_and_goes_on_where_it_was(
    spark: SparkSession, site: NatsSite, do: Do, topic: str, tmp_path: Path
) -> None:
    publish(do, topic, 10)
    batches: list[list[bytes]] = []

    def run() -> None:
        options = {"bus": "nats", "natsUrl": site.url, "busPrefix": "dev.", "subscribe": topic}
        frame = spark.readStream.format("slipstream").options(**options, startingOffsets="earliest").load()
        query = (
            frame.writeStream.foreachBatch(
                lambda batch, _: batches.append([bytes(row.value) for row in batch.orderBy("offset").collect()])
            )
            .option("checkpointLocation", str(tmp_path))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    run()
    publish(do, topic, 5, first=10)
    run()
    assert batches == [[b"v%d" % n for n in range(10)], [b"v%d" % n for n in range(10, 15)]]
