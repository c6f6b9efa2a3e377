"""The scripted stream is what it claims to be, by the words of those who would read it otherwise."""

from __future__ import annotations

import msgspec
import pytest

from slipstream.jobs.errors import MalformedMessage
from slipstream.jobs.messages import DeadLetterTask, DownloadTask, JobLog, JobStatus, decode
from slipstream.slip.progress import Kind, Progress, decode_progress, split_progress
from slipstream.testing import MemoryBroker
from tests.pipeline.answers import answers
from tests.pipeline.job_story import DLQ, LOGS, STATUS, TASKS
from tests.pipeline.slip_story import PROGRESS
from tests.pipeline.stored import Stored, read_log
from tests.pipeline.story import PARTITIONS, story, tell


@pytest.fixture(scope="module")
def log() -> list[Stored]:
    with MemoryBroker() as broker:
        tell(broker.url, 1_200, parts=10, between=lambda: broker.advance(seconds=25))
        return read_log(broker.url)


def test_a_story_is_the_same_whenever_it_is_told() -> None:
    assert list(story(500, 7)) == list(story(500, 7))
    assert list(story(500, 7)) != list(story(500, 8))


def test_a_story_has_as_many_messages_as_were_asked_for() -> None:
    assert len(list(story(777))) == 777


def test_a_server_has_all_of_it_in_all_partitions(log: list[Stored]) -> None:
    told = [one for one in log if one.topic in PARTITIONS]
    assert len(told) == 1_200
    assert {(one.topic, one.partition) for one in told} == {
        (topic, partition) for topic, partitions in PARTITIONS.items() for partition in range(partitions)
    }
    assert {one.topic for one in log} - PARTITIONS.keys() == {"dlq.orders"}


def test_it_is_stored_over_several_minutes(log: list[Stored]) -> None:
    assert len({one.timestamp.replace(second=0, microsecond=0) for one in log}) > 3


def test_every_kind_of_event_is_told(log: list[Stored]) -> None:
    assert {row["kind"] for row in answers(log)["slip_events"]} == set(Kind.__args__)  # type: ignore[attr-defined]


def test_every_state_comes_about(log: list[Stored]) -> None:
    tables = answers(log)
    steps, runs = tables["slip_steps"], tables["slip_runs"]
    assert {row["state"] for row in steps} == {"working", "waiting", "done", "retried", "failed", "skipped"}
    assert {row["state"] for row in runs} == {"under way", "completed", "dead-lettered", "dropped"}
    assert {row["optional"] for row in steps} == {True, False}
    assert {row["run"] for row in runs} == {0, 1}
    assert any(row["parent"] for row in runs)
    assert any(row["undoes"] for row in steps)
    assert any(row["taken"] > 1 for row in steps)
    assert {row["state"] for row in tables["job_status"]} >= {"JOB_STATE_PARTIAL", "17", "-1"}
    assert all(rows for rows in tables.values())


def test_the_tracker_reads_what_is_not_in_quarantine(log: list[Stored]) -> None:
    """But for numbers so large that no table need hold them."""
    tables = answers(log)
    bad = {(row["topic"], row["partition"], row["offset"]) for row in tables["quarantine"]}
    for one in log:
        if one.topic == PROGRESS:
            told = _as_the_tracker_reads(one.value)
            is_bad = told is None or any(map(_is_out_of_bounds, told))
            assert ((one.topic, one.partition, one.offset) in bad) == is_bad, one


def _is_out_of_bounds(progress: Progress) -> bool:
    return (
        progress.at.year >= 2500
        or max(progress.run, progress.attempt) > 1_000_000_000
        or abs(progress.duration_ms or 0) > 1e13
    )


def _as_the_tracker_reads(value: bytes) -> list[Progress] | None:
    try:
        return [decode_progress(data) for data in split_progress(value)]
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def test_jobs_read_what_is_not_in_quarantine(log: list[Stored]) -> None:
    kinds = {TASKS: DownloadTask, STATUS: JobStatus, LOGS: JobLog, DLQ: DeadLetterTask}
    bad = {(row["topic"], row["partition"], row["offset"]) for row in answers(log)["quarantine"]}
    unread = 0
    for one in log:
        if one.topic in kinds:
            try:
                decode(kinds[one.topic], one.value)
            except MalformedMessage:
                unread += 1
                assert (one.topic, one.partition, one.offset) in bad
    assert unread >= 8
