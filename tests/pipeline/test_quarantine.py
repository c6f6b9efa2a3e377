"""What cannot be read is kept and said so, and nothing else is lost by it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from slipstream.api import TopicConfigFields
from slipstream.client import Client
from slipstream.jobs.jobs_pb2 import DeadLetterTask, DownloadTask, JobLog, JobStatus
from slipstream.pipeline.errors import PipelineError
from slipstream.testing import MemoryBroker
from tests.pipeline.compare import read_rows
from tests.pipeline.job_story import DLQ, LOGS, STATUS, TASKS
from tests.pipeline.made import make
from tests.pipeline.rows import Row
from tests.pipeline.slip_story import PROGRESS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GOOD = {
    TASKS: DownloadTask(job_id="j", resource_id="r", url="https://img.example/a").SerializeToString(),
    STATUS: JobStatus(job_id="j", timestamp_ms=1).SerializeToString(),
    LOGS: JobLog(job_id="j", message="hello", timestamp_ms=1).SerializeToString(),
    DLQ: DeadLetterTask(task=DownloadTask(job_id="j"), failure_code="X", failed_at_ms=1).SerializeToString(),
    PROGRESS: b'[{"kind":"started","correlationId":"c","at":"2026-03-14T00:00:00Z","step":"check"}]',
}
TABLES = {
    TASKS: ("download_tasks", "DownloadTask"),
    STATUS: ("job_status", "JobStatus"),
    LOGS: ("job_logs", "JobLog"),
    DLQ: ("dead_letters", "DeadLetterTask"),
    PROGRESS: ("slip_events", "Progress"),
}


def test_a_corrupt_message_is_in_quarantine_and_nothing_else_is_lost(spark: SparkSession, tmp_path: Path) -> None:
    with MemoryBroker() as broker, Client(broker.url) as client:
        for topic, good in GOOD.items():
            client.create_topic(topic)
            client.produce_batch(topic, [good] * 50)
            client.produce(topic, good[:-1], key="bad", attributes={"why": "cut off"})
            client.produce_batch(topic, [good] * 50)
        make(spark, broker.url, tmp_path)
        for topic, good in GOOD.items():
            client.produce(topic, good)
        make(spark, broker.url, tmp_path)
    quarantine = {row["topic"]: row for row in read_rows("quarantine", tmp_path / "quarantine")}
    messages = read_rows("messages", tmp_path / "messages")
    for topic, (table, kind) in TABLES.items():
        bad = quarantine[topic]
        assert (bad["kind"], bad["key"], bad["value"], bad["headers"]) == (
            kind,
            b"bad",
            GOOD[topic][:-1],
            {"why": "cut off"},
        )
        assert bad["reason"]
        places = _places(read_rows(table, tmp_path / table))
        assert len(places) == 101
        assert places | {(topic, bad["partition"], bad["offset"])} == _places(
            row for row in messages if row["topic"] == topic
        )
    assert len(quarantine) == len(TABLES)


def _places(rows: Iterable[Row]) -> set[tuple[str, int, int]]:
    return {(row["topic"], row["partition"], row["offset"]) for row in rows}


def test_messages_that_retention_took_from_a_stopped_query_are_missed_and_said_so(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with MemoryBroker() as broker, Client(broker.url) as client:
        client.create_topic(LOGS, config=TopicConfigFields(retention_ms=3_600_000))
        client.produce_batch(LOGS, [GOOD[LOGS]] * 5)
        make(spark, broker.url, tmp_path, "job_logs")
        client.produce_batch(LOGS, [GOOD[LOGS]] * 5)
        broker.advance(hours=2)
        client.produce_batch(LOGS, [GOOD[LOGS]] * 5)
        with pytest.raises(PipelineError, match=rf"{LOGS}/0: offsets 5 to 9 are gone: retention removed them"):
            make(spark, broker.url, tmp_path, "job_logs")
        assert [row["offset"] for row in read_rows("job_logs", tmp_path / "job_logs")] == [0, 1, 2, 3, 4]
        make(spark, broker.url, tmp_path, "job_logs", fail_on_data_loss=False)
    offsets = sorted(row["offset"] for row in read_rows("job_logs", tmp_path / "job_logs"))
    assert offsets == [0, 1, 2, 3, 4, 10, 11, 12, 13, 14]
    assert f"{LOGS}/0: offsets 5 to 9 were removed before they were read, and are in no table" in caplog.text
