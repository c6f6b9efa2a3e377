"""The ledger's file: one writer, pages, forgetting, and that it is made anew from the streams."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from slipstream.jobs.clock import now_ms
from slipstream.jobs.errors import InvalidJobs
from slipstream.jobs.ledger import LedgerInUse, LedgerUnavailable, Rank, Told, open_ledger
from slipstream.jobs.messages import JobLog, JobState, JobStatus, encode
from tests.client.loop import in_loop
from tests.jobs.hostile_server import hostile_server
from tests.jobs.lab import Lab, laboratory


def _stored(job_id: str, resource_id: str = "a", offset: int = 0) -> Told:
    return Told(job_id, resource_id, Rank.COMPLETED, offset, 5, {"bytes": "17"}, "stored")


@in_loop
async def test_a_second_writer_is_refused_and_told_what_to_do(tmp_path: Path) -> None:
    path = str(tmp_path / "jobs.db")
    async with open_ledger(path):
        with pytest.raises(LedgerInUse, match=r"in use by another process.*JOBS_LEDGER"):
            async with open_ledger(path):
                pass
    async with open_ledger(path) as ledger:
        assert ledger.jobs() == []


@pytest.mark.parametrize("kind", ["no database", "of something else", "newer", "a folder"])
@in_loop
async def test_a_file_of_something_else_is_left_alone(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    if kind == "no database":
        path.write_bytes(b"something else" * 1000)
    elif kind == "a folder":
        path.mkdir()
    else:
        async with open_ledger(str(path)):
            pass
        with sqlite3.connect(path) as connection:
            connection.execute("PRAGMA user_version = 99" if kind == "newer" else "PRAGMA application_id = 7")
        connection.close()
    with pytest.raises((InvalidJobs, LedgerUnavailable), match=r"jobs\.db"):
        async with open_ledger(str(path)):
            pass


@in_loop
async def test_jobs_come_in_pages_the_newest_first_each_once(tmp_path: Path) -> None:
    async with open_ledger(":memory:") as ledger:
        for number in range(10):
            state = JobState.JOB_STATE_QUEUED if number % 2 else JobState.JOB_STATE_COMPLETED
            done = 0 if number % 2 else 1
            await ledger.fold_status(
                JobStatus(
                    job_id=f"j{number}",
                    job_type="a" if number < 6 else "b",
                    tenant="shop" if number < 3 else "other",
                    state=state,
                    resources_total=1,
                    resources_completed=done,
                    timestamp_ms=100 + number // 3,  # some at the same time
                )
            )
        found: list[str] = []
        before = None
        while page := ledger.jobs(limit=3, before=before):
            found += [job.job_id for job in page]
            before = (page[-1].created_ms, page[-1].job_id)
        assert found == [f"j{number}" for number in reversed(range(10))]
        assert [job.job_id for job in ledger.jobs(state="completed", job_type="a", tenant="shop")] == ["j2", "j0"]
        assert ledger.counts() == {"completed": 5, "queued": 5}


@in_loop
async def test_what_nothing_happens_to_any_more_is_forgotten(tmp_path: Path) -> None:
    async with open_ledger(str(tmp_path / "jobs.db")) as ledger:
        for number in range(50):
            await ledger.fold_logs("t", 0, [_stored(f"j{number}")])
        began_ms = now_ms()
        await ledger.fold_status(JobStatus(job_id="young", resources_total=1, timestamp_ms=began_ms + 60_000))
        assert await ledger.forget(60_000) == 0
        assert await ledger.forget(-30_000) == 50
        assert [job.job_id for job in ledger.jobs()] == ["young"]
        assert ledger.resources("j1") == []
        assert await ledger.forget(-120_000) == 1


@in_loop
async def test_a_service_forgets_by_itself(tmp_path: Path) -> None:
    async with laboratory(tmp_path, worker=False) as lab:
        await lab.service.ledger.fold_logs("t", 0, [_stored("j")])
    # the streams are gone with their memory, and the job has ended
    async with laboratory(tmp_path, worker=False, keep_ms=1) as lab:
        await lab.until(lambda: not lab.service.ledger.jobs())


def _known(lab: Lab) -> dict[str, object]:
    """All but when it was heard."""
    known: dict[str, object] = {}
    for job in lab.service.ledger.jobs():
        known[job.job_id] = (
            job.job_type,
            job.tenant,
            job.state,
            (job.resources_total, job.resources_completed, job.resources_failed),
            job.manifest_key,
            (job.last_error_code, job.last_error_message),
            (job.log_partition, job.log_offset),
            job.created_ms,
            lab.service.ledger.resources(job.job_id),
        )
    return known


def _positions(lab: Lab) -> list[int]:
    return [lab.service.ledger.position("fetchbox.jobs.logs", partition) for partition in range(4)]


@in_loop
async def test_a_ledger_that_is_lost_is_made_anew_from_the_streams(tmp_path: Path) -> None:
    bus = {"driver": "embedded", "data": str(tmp_path / "bus")}
    async with hostile_server() as server:
        async with laboratory(tmp_path, bus=bus, max_attempts=1) as lab:
            jobs = [
                await lab.submit({"a": server.url("/ok/10"), "b\0": server.url("/ok/5")}, tenant="shop"),
                await lab.submit({"a": server.url("/status/404"), "b": server.url("/ok/1")}),
                await lab.submit({"a": server.url("/status/404")}),
            ]
            ends = [(await lab.ended(job)).state for job in jobs]
            assert ends == ["completed", "partial", "failed"]
            theirs = JobStatus(job_id="theirs", resources_total=9, resources_completed=4, timestamp_ms=now_ms())
            await lab.service.bus.publish("fetchbox.jobs.status", theirs.SerializeToString(), key="theirs")
            await lab.until(lambda: lab.service.ledger.job("theirs") is not None)
            before, positions = _known(lab), _positions(lab)
            assert len(before) == 4
            await lab.service.rebuild()
            assert _known(lab) == before
            await lab.until(lambda: _positions(lab) == positions)
            assert _known(lab) == before, "to hear it again changes nothing"
        for path in tmp_path.glob("jobs.db*"):
            path.unlink()
        async with laboratory(tmp_path, bus=bus, worker=False) as lab:
            await lab.until(lambda: _positions(lab) == positions)
            assert _known(lab) == before
            assert sum(server.paths.values()) == 5, "and nothing was downloaded again"


@in_loop
async def test_a_log_from_a_broken_clock_does_not_stop_the_others(tmp_path: Path) -> None:

    async with laboratory(tmp_path, worker=False) as lab:
        for job_id, at_ms in (("odd", 2**64 - 1), ("even", 5)):
            log = JobLog(job_id=job_id, resource_id="a", fields={"step": "stored"}, timestamp_ms=at_ms)
            await lab.service.bus.publish("fetchbox.jobs.logs", encode(log), key="same")
        assert (await lab.ended("even")).state == "completed"
        assert (await lab.ended("odd")).state == "completed"
        assert (await lab.service.health()).status == "ok"
