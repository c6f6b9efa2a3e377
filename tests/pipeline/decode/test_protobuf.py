"""Protobuf as columns, held against Google's own decoder."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.message import DecodeError, Message
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstream.jobs import jobs_pb2
from slipstream.jobs.jobs_pb2 import DeadLetterTask, DownloadTask, JobLog, JobStatus
from slipstream.pipeline.decode import KINDS, Decoded, decode_protobuf, schema_of

TASK = DownloadTask(job_id="j1", resource_id="r1", url="https://user:secret@Example.com:8443/a?b#c", tenant="acme")


def decoded(kind: str, *values: bytes) -> Decoded:
    return decode_protobuf(kind, pa.array(values, pa.binary()))


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_of_the_schema_is_a_column(kind: str) -> None:
    fields = [field.name for field in getattr(jobs_pb2, kind).DESCRIPTOR.fields]
    assert schema_of(kind).names[: len(fields)] == fields


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_batch_has_the_same_columns(kind: str) -> None:
    good = {"DeadLetterTask": DeadLetterTask(task=TASK)}.get(kind) or getattr(jobs_pb2, kind)(job_id="j1")
    assert decoded(kind, good.SerializeToString()).columns.schema == schema_of(kind)


def test_a_bad_message_is_refused_alone() -> None:
    good = [JobStatus(job_id=f"j{number}").SerializeToString() for number in range(9)]
    found = decoded("JobStatus", *good[:4], b"\xff\xff", *good[4:], b"\x0a\x02\xff\xfe")
    assert found.columns.column("job_id").to_pylist() == [f"j{number}" for number in range(9)]
    assert found.rows.to_pylist() == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert sorted(found.refused) == [4, 10]
    assert "UTF-8" in found.refused[10]


@pytest.mark.parametrize(
    ("kind", "message", "reason"),
    [
        ("JobStatus", JobStatus(), "a JobStatus without a job_id"),
        ("DeadLetterTask", DeadLetterTask(failure_code="X"), "a DeadLetterTask without its task"),
        ("JobLog", JobLog(job_id="j", timestamp_ms=2**64 - 1), "timestamp_ms is later than the year 9999"),
        ("DeadLetterTask", DeadLetterTask(task=TASK, failed_at_ms=2**60), "failed_at_ms is later than the year 9999"),
        ("JobStatus", JobStatus(job_id="j", log_offset=2**63), "log_offset does not fit into 64 bits"),
    ],
)
def test_what_no_table_can_hold_is_refused(kind: str, message: Message, reason: str) -> None:
    good = DeadLetterTask(task=TASK) if kind == "DeadLetterTask" else getattr(jobs_pb2, kind)(job_id="good")
    found = decoded(kind, good.SerializeToString(), message.SerializeToString(), good.SerializeToString())
    assert found.refused == {1: reason}
    assert found.rows.to_pylist() == [0, 2]
    assert found.columns.num_rows == 2


def test_a_state_that_a_newer_producer_knows_stays_its_number() -> None:
    known, newer = JobStatus(job_id="a", state=jobs_pb2.JOB_STATE_PARTIAL), JobStatus(job_id="b")
    # As a newer schema would write it: proto3 keeps numbers that it has no name for.
    newer.ParseFromString(newer.SerializeToString() + b"\x18\x11")
    found = decoded("JobStatus", known.SerializeToString(), newer.SerializeToString())
    assert found.columns.column("state").to_pylist() == ["JOB_STATE_PARTIAL", "17"]


def test_a_dead_letter_has_what_is_asked_for_most_beside_its_task() -> None:
    letter = DeadLetterTask(task=TASK, failure_code="HTTP_404", attempts=3, failed_at_ms=1_760_000_000_123)
    (row,) = decoded("DeadLetterTask", letter.SerializeToString()).columns.to_pylist()
    assert (row["job_id"], row["tenant"], row["host"], row["attempts"]) == ("j1", "acme", "example.com", 3)
    assert row["failed_at"].isoformat() == "2025-10-09T08:53:20.123000+00:00"
    assert row["task"]["resource_id"] == "r1"


def test_a_log_has_its_step_its_tenant_and_its_bytes() -> None:
    logs = [{"step": "stored", "bytes": "17", "tenant": "acme"}, {"bytes": "many"}, {"bytes": "-1"}, {}]
    values = [JobLog(job_id="j", fields=fields).SerializeToString() for fields in logs]
    columns = decoded("JobLog", *values).columns
    assert columns.column("step").to_pylist() == ["stored", None, None, None]
    assert columns.column("tenant").to_pylist() == ["acme", None, None, None]
    assert columns.column("bytes").to_pylist() == [17, None, None, None]


_texts = st.text(max_size=8)
_tasks = st.builds(
    DownloadTask,
    job_id=st.text(min_size=1, max_size=8),
    url=_texts,
    headers=st.lists(st.builds(jobs_pb2.HttpHeader, name=_texts, value=_texts), max_size=2),
    attempt=st.integers(0, 2**32 - 1),
    attributes=st.none()
    | st.builds(jobs_pb2.TaskAttributes, tags=st.dictionaries(_texts, _texts, max_size=2), extra=st.binary(max_size=4)),
    tenant=_texts,
)


@settings(deadline=None)
@given(st.lists(_tasks, min_size=1, max_size=5))
def test_tasks_are_what_google_says_they_are(tasks: list[DownloadTask]) -> None:
    found = decoded("DownloadTask", *(task.SerializeToString() for task in tasks)).columns.to_pylist()
    assert [_of(row) for row in found] == tasks


def _of(row: dict[str, Any]) -> DownloadTask:
    task = DownloadTask(**{name: row[name] for name in ("job_id", "url", "attempt", "tenant")})
    for header in row["headers"]:
        task.headers.add(**header)
    if row["attributes"] is not None:
        task.attributes.SetInParent()
        task.attributes.tags.update(dict(row["attributes"]["tags"]))
        task.attributes.extra = row["attributes"]["extra"]
    return task


@settings(deadline=None)
@given(st.lists(st.binary(max_size=30), min_size=1, max_size=8))
def test_whatever_the_bytes_are_each_is_a_row_or_refused(values: list[bytes]) -> None:
    found = decoded("JobStatus", *values)
    assert sorted([*found.rows.to_pylist(), *found.refused]) == list(range(len(values)))
    for index in found.rows.to_pylist():
        try:
            JobStatus.FromString(values[index])
        except DecodeError as error:
            raise AssertionError(f"{values[index]!r} is a row, and Google says: {error}") from error


def test_of_a_key_that_a_map_has_twice_the_last_counts() -> None:
    """No encoder writes it, and every reader of protobuf knows what it means."""
    log = JobLog(job_id="j").SerializeToString()
    entries = [JobLog(fields={"bytes": text}).SerializeToString() for text in ("1", "2")]
    found = decoded("JobLog", JobLog(job_id="a", fields={"x": "y"}).SerializeToString(), log + entries[0] + entries[1])
    assert found.columns.column("bytes").to_pylist() == [None, 2]
    assert found.columns.column("fields").to_pylist() == [[("x", "y")], [("bytes", "2")]]


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://[2001:DB8::1]:8080/a", "2001:db8::1"),
        ("http://[::1", ""),
        ("https://a.example?b", "a.example"),
        ("mailto:somebody", ""),
        ("", ""),
    ],
)
def test_the_host_of_a_url(url: str, host: str) -> None:
    letter = DeadLetterTask(task=DownloadTask(job_id="j", url=url))
    assert decoded("DeadLetterTask", letter.SerializeToString()).columns.column("host").to_pylist() == [host]


def test_a_dead_letter_of_what_was_no_task_is_kept() -> None:
    letter = DeadLetterTask(task=DownloadTask(url="http://a.example"), failure_code="MALFORMED")
    assert not decoded("DeadLetterTask", letter.SerializeToString()).refused
