"""The rules that are easy to get wrong, each on a handful of rows."""

from __future__ import annotations

import datetime as dt
import itertools
from typing import Any

import pytest

from slipstream.api import Envelope
from slipstream.jobs.jobs_pb2 import DeadLetterTask, DownloadTask, JobLog, JobStatus
from tests.pipeline.answers import answers
from tests.pipeline.job_answers import host_of
from tests.pipeline.job_story import DLQ, LOGS, STATUS, TASKS
from tests.pipeline.rows import Row
from tests.pipeline.slip_answers import percentile, run_lineage, slip_runs, slip_steps, step_metrics, stuck_slips
from tests.pipeline.stored import Stored, time_of

T0 = dt.datetime(2026, 3, 14, 12, tzinfo=dt.UTC)
_offsets = itertools.count()


def at(seconds: float) -> dt.datetime:
    return T0 + dt.timedelta(seconds=seconds)


def told(kind: str, seconds: float, step: str = "", **more: Any) -> Row:
    """An event of slip_events, each at a place after the one before."""
    row: Row = {"partition": 0, "offset": next(_offsets), "index": 0, "kind": kind, "correlation_id": "c", "run": 0}
    row |= {"type": "", "step": step, "attempt": 0, "at": at(seconds), "duration_ms": None, "error_code": None}
    row |= {"error_message": None, "error_retryable": None, "detail": "", "steps": [], "parent": ""}
    return row | {"trace_id": "", "by": ""} | more


def the_step(*events: Row) -> Row:
    (row,) = slip_steps(events)
    return row


def the_run(*events: Row) -> Row:
    (row,) = slip_runs(events)
    return row


# Attempts at steps


def test_the_first_outcome_in_the_log_is_right_whatever_the_clocks_say() -> None:
    row = the_step(told("retried", 9, "a", by="first", error_code="x"), told("finished", 5, "a", by="second"))
    assert (row["state"], row["by"], row["ended_at"], row["error_code"]) == ("retried", "first", at(9), "x")
    assert row["last_at"] == at(9)


def test_an_outcome_told_twice_is_of_who_is_first_in_the_log() -> None:
    row = the_step(told("finished", 5, "a", by="first"), told("finished", 5, "a", by="second"))
    assert row["by"] == "first"
    row = the_step(
        told("finished", 5, "a", offset=7, index=3, by="d"), told("failed", 5, "a", offset=7, index=2, by="c")
    )
    assert row["by"] == "c"


def test_an_outcome_is_stronger_than_skipping_and_that_than_waiting_and_that_than_working() -> None:
    events = [
        told("finished", 9, "a"),
        told("skipped", 1, "a"),
        told("waiting", 20, "a"),
        told("started", 30, "a"),
    ]
    states = []
    while events:
        states.append(the_step(*events)["state"])
        del events[0]
    assert states == ["done", "skipped", "waiting", "working"]


def test_of_what_goes_on_the_latest_counts() -> None:
    row = the_step(told("waiting", 8, "a", detail="again"), told("forked", 5, "a", detail="first"))
    assert (row["detail"], row["ended_at"], row["began_at"]) == ("again", None, at(5))
    row = the_step(told("started", 5, "a", by="first"), told("started", 5, "a", by="second"))
    assert (row["by"], row["taken"]) == ("second", 2)


def test_an_attempt_began_when_the_first_says_so_if_only_by_how_long_it_took() -> None:
    assert the_step(told("finished", 10, "a", duration_ms=2500.0004))["began_at"] == at(7.5)
    assert the_step(told("started", 3, "a"), told("finished", 10, "a", duration_ms=2500.0))["began_at"] == at(3)
    assert the_step(told("skipped", 10, "a", duration_ms=2500.0))["began_at"] is None
    assert the_step(told("finished", 10, "a"))["began_at"] is None


def test_a_step_is_optional_if_it_failed_and_was_skipped_for_it() -> None:
    failed, skipped = told("failed", 5, "a", error_code="x"), told("skipped", 5, "a", error_code="x")
    row = the_step(skipped, failed)
    assert (row["state"], row["optional"]) == ("failed", True)
    assert not the_step(told("skipped", 5, "a", error_code="message_timeout"))["optional"]
    assert not the_step(told("skipped", 5, "a", detail="its unless holds"))["optional"]


@pytest.mark.parametrize(
    ("step", "undoes"), [("undo:charge", "charge"), ("undo:charge#1", "charge"), ("charge", ""), ("re-undo:x", "")]
)
def test_a_step_says_what_it_undoes(step: str, undoes: str) -> None:
    assert the_step(told("started", 1, step))["undoes"] == undoes


def test_the_ends_of_slips_are_no_attempts() -> None:
    assert slip_steps([told("dead-lettered", 1, "a"), told("planned", 0, steps=["a"]), told("started", 1)]) == []


# Runs


def test_the_last_end_of_a_run_in_the_log_is_its_end() -> None:
    row = the_run(
        told("completed", 9, duration_ms=9.0),
        told("dead-lettered", 5, "a", error_code="x", error_message="y", duration_ms=5.0),
        told("started", 7, "b"),
    )
    assert (row["state"], row["ended_at"], row["failed_step"]) == ("dead-lettered", at(5), "a")
    assert (row["error_code"], row["error_message"], row["duration_ms"], row["events"]) == ("x", "y", 5.0, 3)
    assert (row["last_step"], row["last_kind"], row["last_at"]) == ("b", "started", at(9))


def test_a_run_without_an_end_is_under_way() -> None:
    row = the_run(told("planned", 0, steps=["router", "a"], parent="p", detail="near"), told("planned", 1, steps=["b"]))
    assert (row["state"], row["ended_at"], row["failed_step"]) == ("under way", None, "")
    assert (row["steps"], row["parent"], row["branch"]) == (["router", "a"], "p", "near")
    assert (row["last_step"], row["last_kind"], row["begun_at"]) == ("", "", at(0))


def test_runs_of_a_slip_stand_for_themselves() -> None:
    rows = slip_runs([told("dropped", 5), told("rerun", 6, run=1, steps=["router", "a"], detail="a copy of b")])
    assert [(row["run"], row["state"], row["branch"]) for row in rows] == [(0, "dropped", ""), (1, "under way", "")]
    assert [row["steps"] for row in rows] == [[], ["router", "a"]]


def test_a_slip_is_stuck_if_it_is_under_way_and_nothing_was_told_for_long() -> None:
    runs = slip_runs(
        [
            told("started", 0, "a", correlation_id="old"),
            told("started", 10, "b", correlation_id="new"),
            told("completed", 0, correlation_id="over"),
            told("waiting", 0, "manager", correlation_id="approval"),
            told("forked", 0, "both", correlation_id="parent"),
            told("planned", 0, correlation_id="parent/both/left", parent="parent"),
            told("waiting", 0, "clerk", correlation_id="parent/both/left"),
            told("forked", 0, "join", correlation_id="joining"),
        ]
    )
    assert [(row["correlation_id"], row["step"], row["kind"], row["since"]) for row in stuck_slips(runs, at(10))] == [
        ("old", "a", "started", at(0)),
        ("joining", "join", "forked", at(0)),
    ]


# What is computed of them


def test_metrics_count_attempts_that_have_ended() -> None:
    steps = slip_steps(
        [
            told("retried", 1, "a", duration_ms=10.0),
            told("finished", 2, "a", attempt=1, duration_ms=20.0),
            told("failed", 3, "a", correlation_id="d", duration_ms=None),
            told("skipped", 3, "a", correlation_id="e", duration_ms=1.0),
            told("finished", 60, "a", correlation_id="f", duration_ms=7.0),
        ]
    )
    first, second = step_metrics(steps)
    assert (first["runs"], first["attempts"], first["errors"], first["p50_ms"]) == (2, 3, 2, 15.0)
    assert (second["minute"], second["p99_ms"]) == (at(60), 7.0)


def test_percentiles_lie_between_two_neighbours() -> None:
    assert percentile([1.0, 2.0, 4.0, 8.0], 0.5) == 3.0
    assert percentile([0.0, 100.0], 0.95) == 95.0
    assert percentile([5.0], 0.99) == 5.0
    assert percentile([], 0.5) is None


def test_lineage_has_what_was_planned_and_what_was_done() -> None:
    events = [
        told("planned", 0, steps=["router", "a", "b"], parent="p", run=1),
        told("retried", 1, "a", run=1),
        told("started", 2, "a", attempt=1, run=1),
        told("compensated", 9, "undo:a#1", run=1),
    ]
    rows = {row["step_id"]: row for row in run_lineage(events, slip_steps(events))}
    assert {row["run_id"] for row in rows.values()} == {"c#1"}
    a, b, undo = rows["a"], rows["b"], rows["undo:a#1"]
    assert (a["position"], a["parent_step_id"], a["parent_run_id"], a["attempts"]) == (0, "", "p", 2)
    assert (a["state"], a["first_at"], a["last_at"]) == ("working", at(1), at(2))
    assert (b["position"], b["parent_step_id"], b["attempts"], b["state"], b["first_at"]) == (1, "a", None, None, None)
    assert (undo["position"], undo["parent_step_id"], undo["parent_run_id"], undo["state"]) == (None, "", "", "done")


# Jobs


def stored(topic: str, message: Any, ms: int = 0, offset: int | None = None, **more: Any) -> Stored:
    value = message if isinstance(message, bytes) else message.SerializeToString()
    return Stored(topic, "1", 0, next(_offsets) if offset is None else offset, ms, b"", value, **more)


def test_the_latest_status_is_the_latest_told_and_then_the_last_in_the_log() -> None:
    log = [
        stored(STATUS, JobStatus(job_id="j", timestamp_ms=5, state="JOB_STATE_IN_PROGRESS")),
        stored(STATUS, JobStatus(job_id="j", timestamp_ms=9, state="JOB_STATE_FAILED", last_error_code="first")),
        stored(STATUS, JobStatus(job_id="j", timestamp_ms=9, state="JOB_STATE_COMPLETED", last_error_code="second")),
        stored(STATUS, JobStatus(job_id="j", timestamp_ms=1, state="JOB_STATE_QUEUED")),
    ]
    (row,) = answers(log)["job_snapshots"]
    assert (row["state"], row["last_error_code"], row["offset"]) == ("JOB_STATE_COMPLETED", "second", log[2].offset)
    assert (row["first_at"], row["updated_at"], row["ended_at"]) == (time_of(1), time_of(9), time_of(9))
    assert row["statuses"] == 4


def test_tables_of_tenants_have_no_empty_rows() -> None:
    log = [
        stored(LOGS, JobLog(job_id="j", fields={"step": "downloaded", "tenant": "t"})),
        stored(LOGS, JobLog(job_id="j", fields={"step": "started", "tenant": "s"}), 61_000),
        stored(LOGS, JobLog(job_id="j", fields={"step": "stored", "bytes": "12"}), 119_999),
        stored(LOGS, JobLog(job_id="j", fields={"step": "stored", "bytes": "1" * 19}), 119_999),
        stored(STATUS, JobStatus(job_id="j", tenant="q", state="JOB_STATE_QUEUED")),
    ]
    tables = answers(log)
    minutes = {(row["tenant"], row["minute"]): row for row in tables["job_throughput"]}
    assert minutes.keys() == {("s", time_of(60_000)), ("", time_of(60_000))}
    assert minutes["", time_of(60_000)]["stored"] == 2
    assert minutes["", time_of(60_000)]["bytes"] == 12
    assert {row["tenant"] for row in tables["tenant_usage"]} == {"", "q"}


def test_causes_have_the_latest_as_an_example() -> None:
    task = DownloadTask(job_id="j", url="https://A.example:1/x", tenant="t")
    letters = [
        DeadLetterTask(task=task, failure_code="x", failure_message=text) for text in ("late", "early", "latest")
    ]
    log = [stored(DLQ, letter, ms, offset) for letter, ms, offset in zip(letters, (9, 1, 9), (1, 2, 3), strict=True)]
    (row,) = answers(log)["dead_letter_causes"]
    assert (row["count"], row["host"], row["example_message"], row["example_offset"]) == (3, "a.example", "latest", 3)
    assert (row["first_at"], row["last_at"]) == (time_of(1), time_of(9))


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://user:pw@IMG.Example:8443/a", "img.example"),
        ("http://[2001:DB8::1]:80/", "2001:db8::1"),
        ("http://cdn.example./", "cdn.example."),
        ("img.example/a", ""),
        ("http://[::1", ""),
        ("", ""),
    ],
)
def test_a_host_is_that_of_the_url(url: str, host: str) -> None:
    assert host_of(url) == host


def test_messages_that_are_absent_are_null_and_numbers_without_a_name_are_text() -> None:
    status = JobStatus(job_id="j")
    status.state = 17  # type: ignore[assignment]
    tables = answers([stored(TASKS, DownloadTask(job_id="j")), stored(STATUS, status)])
    (task,), (row,) = tables["download_tasks"], tables["job_status"]
    assert (task["proxy_hint"], task["headers"], task["url"]) == (None, [], "")
    assert (row["state"], row["told_at"]) == ("17", time_of(0))


# Envelopes


def test_lineage_of_envelopes_counts_messages_of_all_topics() -> None:
    log = [
        stored("a", b"", 1, envelope=Envelope(run_id="r", step_id="s", parent_step_id="p")),
        stored("b", b"", 2, envelope=Envelope(run_id="r", step_id="s")),
        stored("b", b"", 3, envelope=Envelope(run_id="r")),
        stored("b", b"", 3, envelope=Envelope(step_id="s")),
    ]
    (row,) = answers(log)["run_lineage"]
    assert (row["origin"], row["parent_step_id"], row["topic"], row["messages"]) == ("envelope", "p", "b", 2)
    assert (row["first_at"], row["last_at"], row["attempts"]) == (time_of(1), time_of(2), None)
