"""From messages to tables, and from tables to messages again: what was selected is there as it was."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from slipstream.api import LogMessage
from slipstream.client import Client, compose
from slipstream.jobs.messages import DownloadTask, decode
from slipstream.pipeline.errors import InvalidPipeline
from slipstream.pipeline.looking import NoSuchTable
from slipstream.pipeline.replay.errors import NoSuchTopic, ReplayUnfinished
from slipstream.pipeline.replay.folder import Replay
from slipstream.pipeline.replay.replaying import asking, question_of
from slipstream.pipeline.replay.selection import Seen
from slipstream.pipeline.replay.sending import Sender
from slipstream.pipeline.settings import PipelineSettings, load_settings
from slipstream.testing import MemoryBroker
from tests.pipeline.made import make
from tests.pipeline.sample_tables import make_all, make_table, place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AT = dt.datetime(2026, 11, 1, 12, tzinfo=dt.UTC)


def settings_of(tables: Path, url: str = "", **more: Any) -> PipelineSettings:
    return load_settings({"tables": str(tables), "url": url or "http://127.0.0.1:9", **more}, {})


def composed(
    spark: SparkSession, broker: MemoryBroker, tables: Path, table: str, where: str = "", to: str = "", **more: Any
) -> tuple[Replay | None, Seen]:
    settings = settings_of(tables, broker.url)
    shown: list[Seen] = []
    limit, again = more.pop("limit", 0), more.pop("again", False)

    def agree(seen: Seen) -> bool:
        shown.append(seen)
        return True

    with asking(settings, question_of(settings, table, where, to, limit), again=again) as asked, broker.client() as c:
        return asked.compose_with(spark, c, agree), shown[0]


def send(client: Client, replay: Replay | None) -> None:
    assert replay is not None
    Sender(client, replay, commit_messages=100, commit_bytes=1 << 20).send()
    replay.finish()


def stored(client: Client, topic: str) -> list[LogMessage[bytes]]:
    return [each for part in client.topic(topic).partitions for each in client.scan(topic, part.partition)]


def test_messages_go_back_as_they_were_and_no_key_of_a_producer_holds_them_back(
    spark: SparkSession, tmp_path: Path
) -> None:
    with MemoryBroker() as broker, broker.client() as client:
        client.create_topic("orders", 3)
        client.produce_batch(
            "orders",
            [
                compose(b"\xff\x00", key="user:1", attributes={"traceparent": "00-1", "lang": "de"}),
                compose("two", key="user:2", idempotency_key="order-2", tenant_id="acme", run_id="r1", step_id="s1"),
                compose("three", partition_override=2, labels={"a": "b"}, deadline=broker.now + dt.timedelta(hours=1)),
                compose("other", key="user:1"),
            ],
        )
        before = stored(client, "orders")
        make(spark, broker.url, tmp_path, "messages")
        replay, seen = composed(spark, broker, tmp_path, "messages", "topic = 'orders' AND value <> X'6f74686572'")
        assert (seen.count, seen.left_out, seen.topics) == (3, 0, {"orders": 3})
        send(client, replay)
        new = {each.value: each for each in stored(client, "orders")[0:] if each.offset >= 4}
        old = {each.value: each for each in before}
        assert len(new) == 3
        for value, again in new.items():
            assert (again.key, again.attributes, again.partition) == (
                old[value].key,
                old[value].attributes,
                old[value].partition,
            )
        two, three = new[b"two"].envelope, new[b"three"].envelope
        assert two is not None
        assert three is not None
        assert (two.tenant_id, two.run_id, two.step_id, two.idempotency_key) == ("acme", "r1", "s1", "")
        assert replay is not None
        was = old[b"two"]
        assert two.labels == {
            "replay": replay.plan.id,
            "replayed_from": f"orders/{was.partition}/{was.offset}",
            "replayed_idempotency_key": "order-2",
        }
        assert three.labels is not None
        assert three.labels["a"] == "b"
        assert three.deadline is None


def test_dead_letters_of_the_broker_go_back_to_where_they_died(spark: SparkSession, tmp_path: Path) -> None:
    envelope = {"dlq": {"original_topic": "orders", "original_partition": 0, "original_offset": 7, "attempts": 3}}
    row = {**place("dlq.orders", 0, AT), "key": b"k", "value": b"v", "envelope": envelope}
    make_table(tmp_path, "messages", [row])
    with MemoryBroker() as broker, broker.client() as client:
        client.create_topic("orders")
        replay, seen = composed(spark, broker, tmp_path, "messages", "topic LIKE 'dlq.%'")
        assert (seen.topics, seen.newest) == ({"orders": 1}, {"dlq.orders": 0})
        send(client, replay)
        assert [(each.key, each.value) for each in stored(client, "orders")] == [(b"k", b"v")]


def test_tasks_that_were_published_are_published_again(spark: SparkSession, tmp_path: Path) -> None:
    task = {"job_id": "j", "resource_id": "r", "url": "https://img.example/a", "attempt": 2, "trace_id": ""}
    make_table(tmp_path, "download_tasks", [{**place("fetchbox.jobs.tasks", 0, AT), **task}])
    with MemoryBroker() as broker, broker.client() as client:
        client.create_topic("fetchbox.jobs.tasks")
        replay, _ = composed(spark, broker, tmp_path, "download_tasks", "job_id = 'j'")
        send(client, replay)
        (found,) = stored(client, "fetchbox.jobs.tasks")
        assert found.key == b"j"
        assert found.attributes is not None
        assert found.attributes["correlationId"] == "j"


def test_of_each_resource_the_newest_letter_is_sent_unless_it_is_stored_by_now(
    spark: SparkSession, tmp_path: Path
) -> None:
    def letter(offset: int, resource_id: str, **more: Any) -> dict[str, Any]:
        task = {"job_id": "j", "resource_id": resource_id, "url": "https://img.example/a", "attempt": 3, "trace_id": ""}
        task |= more
        at = AT + dt.timedelta(minutes=offset)
        return {**place("fetchbox.jobs.dlq", offset, at), "task": task, **task, "failed_at_ms": offset}

    def log(offset: int, resource_id: str, minutes: int) -> dict[str, Any]:
        at = AT + dt.timedelta(minutes=minutes)
        return {**place("fetchbox.jobs.logs", offset, at), "job_id": "j", "resource_id": resource_id, "step": "stored"}

    letters = [letter(0, "twice"), letter(1, "twice"), letter(2, "stored"), letter(3, "failed-again")]
    make_table(tmp_path, "dead_letters", [*letters, letter(4, "no-url", url=""), letter(5, "trace", trace_id="NO")])
    make_table(tmp_path, "job_logs", [log(0, "stored", 60), log(1, "failed-again", 0)])
    with MemoryBroker() as broker, broker.client() as client:
        client.create_topic("fetchbox.jobs.tasks")
        replay, seen = composed(spark, broker, tmp_path, "dead_letters")
        assert (seen.count, seen.left_out) == (2, 4)
        assert replay is not None
        assert set(replay.plan.versions) == {"dead_letters", "job_logs"}
        send(client, replay)
        tasks = [decode(DownloadTask, each.value) for each in stored(client, "fetchbox.jobs.tasks")]
        assert [(task.resource_id, task.attempt) for task in tasks] == [("twice", 0), ("failed-again", 0)]


def test_the_oldest_go_first_and_no_more_than_wanted(spark: SparkSession, tmp_path: Path) -> None:
    make_all(tmp_path)
    with MemoryBroker() as broker, broker.client() as client:
        client.create_topic("orders.retry")
        replay, seen = composed(spark, broker, tmp_path, "messages", "offset >= 10", "orders.retry", limit=7)
        assert (seen.count, len(seen.sample)) == (7, 5)
        assert [row["offset"] for row in seen.sample] == [10, 11, 12, 13, 14]
        send(client, replay)
        assert [each.value for each in stored(client, "orders.retry")] == [b'{"order": %d}' % n for n in range(10, 17)]


def test_an_expression_may_ask_other_tables(spark: SparkSession, tmp_path: Path) -> None:
    make_all(tmp_path)
    with MemoryBroker() as broker, broker.client() as client:
        client.create_topic("orders")
        where = "offset IN (SELECT offset FROM quarantine) AND date = (SELECT min(date) FROM messages)"
        replay, seen = composed(spark, broker, tmp_path, "messages", where)
        assert seen.count == 1
        assert replay is not None
        assert set(replay.plan.versions) == {"messages", "quarantine"}


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("offste > 3", r"offste.* cannot be resolved.*The columns are key, value, topic"),
        ("offset >", "Syntax error"),
        ("topic", "is not a boolean|BOOLEAN"),
        ("cast(topic AS int) = 3", "CAST_INVALID_INPUT"),
    ],
)
def test_an_expression_that_is_wrong_is_said_in_words_and_nothing_is_composed(
    spark: SparkSession, tmp_path: Path, where: str, said: str
) -> None:
    make_all(tmp_path)
    with MemoryBroker() as broker, broker.client() as client:
        client.create_topic("orders")
        with pytest.raises(InvalidPipeline, match=said) as refused:
            composed(spark, broker, tmp_path, "messages", where)
        assert "\n" not in str(refused.value)
        assert not list(tmp_path.glob("_replays/*/*/"))


def test_an_expression_that_selects_by_chance_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    make_table(tmp_path, "messages", [{**place("orders", n, AT), "key": b"", "value": b"v"} for n in range(5_000)])
    with MemoryBroker() as broker, broker.client() as client:
        client.create_topic("orders")
        with pytest.raises(InvalidPipeline, match="does not select the same twice"):
            composed(spark, broker, tmp_path, "messages", "reflect('java.util.UUID', 'randomUUID') < '8'")
        assert not list(tmp_path.glob("_replays/*/*/"))


def test_topics_that_are_not_there_are_said_before_anybody_is_asked(spark: SparkSession, tmp_path: Path) -> None:
    make_all(tmp_path)
    with MemoryBroker() as broker, pytest.raises(NoSuchTopic, match="there is no topic orders"):
        composed(spark, broker, tmp_path, "messages", "offset = 1")


def test_what_is_not_finished_is_found_again_and_not_begun_anew(spark: SparkSession, tmp_path: Path) -> None:
    make_all(tmp_path)
    with MemoryBroker() as broker, broker.client() as client:
        client.create_topic("orders")
        replay, _ = composed(spark, broker, tmp_path, "messages", "offset < 3")
        assert replay is not None
        settings = settings_of(tmp_path, broker.url)
        question = question_of(settings, "messages", " offset < 3 ", "", 0)
        with asking(settings, question) as asked:
            assert asked.found is not None
            assert asked.found.plan.id == replay.plan.id
        with pytest.raises(ReplayUnfinished, match="is not finished"), asking(settings, question, again=True):
            pass
        send(client, replay)
        again, _ = composed(spark, broker, tmp_path, "messages", "offset < 3", again=True)
        send(client, again)
        assert len(stored(client, "orders")) == 6


def test_what_can_be_known_without_spark_is_said_without_it(tmp_path: Path) -> None:
    make_all(tmp_path)
    settings = settings_of(tmp_path)
    with pytest.raises(
        InvalidPipeline, match="job_snapshots is a table whose rows cannot be sent back: those of dead_"
    ):
        question_of(settings, "job_snapshots", "", "", 0)
    with pytest.raises(InvalidPipeline, match="only the broker writes dead letters"):
        question_of(settings, "messages", "", "dlq.orders", 0)
    with pytest.raises(InvalidPipeline, match="commits, which only a Slipstream server has"):
        question_of(settings_of(tmp_path, bus="nats"), "messages", "", "", 0)
    with pytest.raises(NoSuchTable, match="no tables in"):
        question_of(settings_of(tmp_path / "none"), "messages", "", "", 0)
    assert question_of(settings, "dead_letters", "", "", 0).to == "fetchbox.jobs.tasks"
    assert question_of(settings, "dead_letters", "", "jobs.status", 0).to == "fetchbox.jobs.status"
    assert question_of(settings, "messages", "", "", 0).to == ""
