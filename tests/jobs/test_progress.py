"""The progress of downloads that are under way, as operators see it before the first of them has ended."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from slipstream.cli.jobs_operator import _show_job
from slipstream.cli.jobs_watch import waiting_text
from slipstream.cli.output import Output
from slipstream.cli.values import time_text
from slipstream.jobs import progress
from slipstream.jobs.client import JobsClient
from slipstream.jobs.clock import now_ms
from slipstream.jobs.ledger import JobSnapshot, open_ledger
from slipstream.jobs.ledger.schema import APPLICATION
from slipstream.jobs.ledger.telling import NUMBER_MAX
from slipstream.jobs.messages import JobLog
from slipstream.jobs.progress import Progress
from slipstream.jobs.server import listening
from tests.client.loop import in_loop
from tests.jobs.hostile_server import hostile_server
from tests.jobs.lab import laboratory


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time of the module, in seconds, moved by hand."""
    at = [1000.0]
    monkeypatch.setattr("slipstream.jobs.progress.time.monotonic", lambda: at[0])
    return at


def _job(**fields: int) -> JobSnapshot:
    numbers: dict[str, Any] = {"resources_total": 10, "resources_completed": 0, "resources_failed": 0, **fields}
    return JobSnapshot(
        job_id="j",
        job_type="t",
        tenant="",
        state="in_progress",
        manifest_key="",
        last_error_code="",
        last_error_message="",
        log_offset=0,
        log_partition=0,
        created_ms=0,
        updated_ms=0,
        **numbers,
    )


def _report(worker: str, *, job_id: str = "j", timestamp_ms: int | None = None, **fields: object) -> JobLog:
    texts = {"step": "progress", "worker": worker, **{name: str(value) for name, value in fields.items()}}
    return JobLog(job_id=job_id, fields=texts, timestamp_ms=now_ms() if timestamp_ms is None else timestamp_ms)


@in_loop
async def test_bytes_speed_and_remaining_time_are_seen_before_a_download_has_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(progress, "REPORT_EVERY_S", 0.01)
    bus = {"driver": "memory", "drain_timeout_ms": 50}
    async with hostile_server() as server, laboratory(tmp_path, port=0, bus=bus) as lab:
        job_id = await lab.submit({"a": server.url("/hang-body"), "b": server.url("/drip")})
        async with listening(lab.service) as url, JobsClient(url) as client:
            while (job := await client.job(job_id)).bytes_under_way < 12 or not job.bytes_per_s:
                await asyncio.sleep(0.01)
            assert job.bytes_stored == 0
            assert job.resources_completed == 0
            [listed] = (await client.jobs()).jobs
            assert listed.bytes_under_way >= 12
            shown = [log async for _, log in client.logs(job_id)]
            assert {log.fields["step"] for log in shown} == {"started"}, "a report each second is no step"


@pytest.mark.parametrize("hold_ms", [10, 3_600_000], ids=["in the stream", "in the worker"])
@in_loop
async def test_a_job_whose_host_asked_to_wait_shows_the_host_and_the_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, hold_ms: int
) -> None:
    monkeypatch.setattr(progress, "REPORT_EVERY_S", 0.01)
    bus = {"driver": "memory", "drain_timeout_ms": 50}
    async with hostile_server() as server, laboratory(tmp_path, port=0, bus=bus, hold_ms=hold_ms) as lab:
        before_ms = now_ms() + 1_200_000
        job_id = await lab.submit({"a": server.url("/retry-after/1200/a"), "b": server.url("/retry-after/1200/b")})
        async with listening(lab.service) as url, JobsClient(url) as client:
            while (job := await client.job(job_id)).waiting_tasks < 2:
                await asyncio.sleep(0.01)
            assert job.waiting_host == "127.0.0.1"
            assert before_ms <= job.waiting_until_ms + 1_000 <= now_ms() + 1_202_000
            until = time_text(job.waiting_until_ms)
            assert waiting_text(job) == f"2 tasks wait for 127.0.0.1, which asked to wait until {until}"
            _show_job(Output(as_json=False), job)
            assert "2 tasks wait for 127.0.0.1" in capsys.readouterr().out
            logged = [log.message async for _, log in client.logs(job_id) if log.fields["step"] == "retry"]
            assert all(text.startswith("the host asked to wait; the next request is in 1") for text in logged), logged
            await client.cancel(job_id)
            assert (await client.job(job_id)).waiting_tasks == 0


@in_loop
async def test_the_bytes_of_stored_resources_are_counted_once(tmp_path: Path) -> None:
    async with hostile_server() as server, laboratory(tmp_path) as lab:
        job_id = await lab.submit(
            {"a": server.url("/ok/100"), "b": server.url("/ok/20"), "c": server.url("/status/404")}
        )
        assert (await lab.ended(job_id)).bytes_stored == 120
        await lab.service.rebuild()
        again = await lab.submit({"a": server.url("/ok/7")})
        await lab.ended(again)
        job = lab.service.ledger.job(job_id)
        assert job is not None
        assert job.bytes_stored == 120


def test_the_reports_of_all_workers_are_added_up_and_each_counts_once(clock: list[float]) -> None:
    reports = Progress()
    reports.note(_report("one", bytes=100, bytes_per_s=50, sized=1, expected=600, left=500))
    reports.note(_report("two", bytes=1, bytes_per_s=1, sized=1, expected=2, left=1))
    reports.note(_report("two", bytes=200, bytes_per_s=50, sized=1, expected=400, left=200))
    job = reports.of(_job(resources_total=5, resources_completed=2, bytes_stored=1000))
    assert (job.bytes_under_way, job.bytes_per_s) == (300, 100)
    # 700 bytes are left of the two under way, and the fifth resource is as long as the mean of the four: 500 bytes.
    assert job.remaining_s == 12
    clock[0] += progress.FRESH_S + 1
    assert reports.of(_job()) == _job(), "a worker that died reports nothing any more"


def test_the_host_with_the_most_waiting_tasks_is_shown_until_it_may_be_asked(clock: list[float]) -> None:
    reports, soon = Progress(), now_ms() + 600_000
    reports.note(_report("one", waiting=2, host="b", until_ms=soon))
    reports.note(_report("two", waiting=2, host="a", until_ms=soon + 5))
    reports.note(_report("three", waiting=1, host="b", until_ms=soon + 9))
    clock[0] += progress.FRESH_S + 1
    job = reports.of(_job())
    assert (job.waiting_tasks, job.waiting_host, job.waiting_until_ms) == (3, "b", soon)
    for worker in ("one", "two", "three"):
        reports.note(_report(worker, waiting=2, host="b", until_ms=now_ms() - 1))
    assert reports.of(_job()) == _job(), "the host may be asked again"
    reports.note(_report("one", waiting=2, host="b", until_ms=soon))
    clock[0] += progress.WAITING_FRESH_S + 1
    assert reports.of(_job()) == _job(), "a worker that died reports nothing any more"


def test_without_a_length_or_a_speed_the_remaining_time_is_unknown(clock: list[float]) -> None:
    reports = Progress()
    reports.note(_report("one", bytes=100, bytes_per_s=50, sized=0, expected=0, left=0))
    assert reports.of(_job()).remaining_s is None
    reports.note(_report("one", bytes=100, bytes_per_s=0, sized=1, expected=200, left=100))
    assert reports.of(_job()).remaining_s is None


def test_a_job_that_has_ended_has_nothing_under_way(clock: list[float]) -> None:
    reports = Progress()
    reports.note(_report("one", bytes=100, bytes_per_s=50, sized=0, expected=0, left=0))
    ended = JobSnapshot(
        **{**{name: getattr(_job(), name) for name in JobSnapshot.__struct_fields__}, "state": "completed"}
    )
    assert reports.of(ended) == ended


def test_old_reports_and_nonsense_change_nothing_and_memory_is_bounded(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    reports = Progress()
    reports.note(_report("one", bytes=1, bytes_per_s=1, timestamp_ms=now_ms() - progress.LATE_MS - 1))
    assert reports.of(_job()) == _job(), "the stream is read again at a start"
    reports.note(_report("one", bytes="-1", bytes_per_s="9" * 18, sized="x", expected="", left="1e9"))
    assert reports.of(_job()).bytes_per_s == NUMBER_MAX
    monkeypatch.setattr(progress, "JOBS_MAX", 2)
    monkeypatch.setattr(progress, "WORKERS_MAX", 2)
    for number in range(4):
        reports.note(_report("one", job_id=f"j{number}", bytes=1))
        reports.note(_report(f"w{number}", bytes=1))
    assert reports.of(_job()).bytes_under_way == 2
    assert len(reports._jobs) == 2


@in_loop
async def test_a_ledger_of_before_counts_the_bytes_that_it_has(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    async with open_ledger(str(path)) as ledger:
        await ledger.queue("j", "t", "", "", ["a", "b"])
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA application_id").fetchone()[0] == APPLICATION
        connection.execute("UPDATE resources SET size = 21")
        connection.execute("ALTER TABLE jobs DROP COLUMN bytes")
        connection.execute("PRAGMA user_version = 2")
    connection.close()
    async with open_ledger(str(path)) as ledger:
        job = ledger.job("j")
        assert job is not None
        assert job.bytes_stored == 42
