"""Jobs that operators cancel, pause and resume: no worker downloads what is cancelled, whoever dies in between."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from slipstream.bus import BusError
from slipstream.jobs import task_runner
from slipstream.jobs.client import JobsClient, ServiceError
from slipstream.jobs.ledger import open_ledger
from slipstream.jobs.ledger.schema import APPLICATION
from slipstream.jobs.messages import DownloadTask, JobState, encode
from slipstream.jobs.server import listening
from slipstream.jobs.service import Service
from tests.client.loop import in_loop
from tests.jobs.hostile_server import hostile_server
from tests.jobs.lab import laboratory


@in_loop
async def test_a_cancelled_job_ends_at_once_and_nothing_more_of_it_is_downloaded(tmp_path: Path) -> None:
    bus = {"driver": "embedded", "data": str(tmp_path / "bus")}
    async with hostile_server() as server:
        async with laboratory(tmp_path, bus=bus, port=0, host_concurrency=2) as lab:
            urls = {f"r{number}": server.url(f"/hang/{number}") for number in range(6)}
            job_id = await lab.submit({"ok": server.url("/ok/10"), **urls})
            await lab.until(lambda: lab.resources(job_id)["ok"].state == "completed" and len(server.paths) == 3)
            async with listening(lab.service) as url, JobsClient(url) as client:
                assert (await client.cancel(job_id)).state == "cancelled"
                assert (await client.cancel(job_id)).state == "cancelled", "said twice is said once"
                with pytest.raises(ServiceError, match="requeue starts it again"):
                    await client.resume(job_id)
            await lab.told(job_id, JobState.JOB_STATE_CANCELLED)
            registry = lab.service.bus.registry
            assert registry is not None
            stopped = {"outcome": "cancelled", "code": ""}
            await lab.until(lambda: registry.get_sample_value("jobs_tasks_total", stopped) == 6)
            assert len(server.paths) == 3
        async with laboratory(tmp_path, bus=bus, ledger=str(tmp_path / "new.db")) as lab:
            job = lab.service.ledger.job(job_id)
            assert job is not None
            assert job.state == "cancelled", "a ledger that is made anew knows it from the stream"
            task = DownloadTask(job_id=job_id, resource_id="late", url=server.url("/ok/11"))
            await lab.service.bus.publish("fetchbox.jobs.tasks", encode(task), key=job_id)
            other = await lab.submit({"a": server.url("/ok/12")})
            await lab.ended(other)
            assert "/ok/11" not in server.paths
            assert await lab.letters() == [], "no dead letters either"


@in_loop
async def test_a_paused_job_begins_nothing_until_it_is_resumed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(task_runner, "PAUSED_MS", 20)
    async with hostile_server() as server, laboratory(tmp_path, max_deliveries=2) as lab:
        job_id = await lab.submit({f"r{number}": server.url(f"/quota/0/{number}") for number in range(3)})
        await lab.until(lambda: len(server.paths) == 3)
        assert (await lab.service.control(job_id, "paused")).state == "paused"
        second = await lab.submit({"a": server.url("/ok/10")})
        await lab.service.control(second, "paused")
        await lab.service.control(second, "")
        assert (await lab.ended(second)).state == "completed"
        before = dict(server.paths)
        third = await lab.submit({"a": server.url("/ok/11")})
        await lab.ended(third)
        assert {path: server.paths[path] for path in before} == before
        await lab.service.control(job_id, "")
        job = lab.service.ledger.job(job_id)
        assert job is not None
        assert job.state == "in_progress"


@in_loop
async def test_a_service_that_dies_after_the_word_is_published_has_heard_it_at_its_next_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bus = {"driver": "embedded", "data": str(tmp_path / "bus")}
    async with laboratory(tmp_path, worker=False, bus=bus) as lab:
        job_id = await lab.submit({"a": "http://127.0.0.1:1/"})

        async def die(*args: Any) -> None:
            raise BusError("killed")

        monkeypatch.setattr(Service, "_note_control", die)
        with pytest.raises(BusError):
            await lab.service.control(job_id, "cancelled")
        monkeypatch.undo()
    async with laboratory(tmp_path, worker=False, bus=bus) as lab:
        job = lab.service.ledger.job(job_id)
        assert job is not None
        assert job.state == "cancelled"


@in_loop
async def test_a_job_that_was_cancelled_is_begun_again_by_requeue(tmp_path: Path) -> None:
    async with hostile_server() as server, laboratory(tmp_path, host_concurrency=1) as lab:
        job_id = await lab.submit({"a": server.url("/hang/a"), "b": server.url("/ok/10")})
        await lab.until(lambda: server.paths["/hang/a"] == 1)
        await lab.service.control(job_id, "cancelled")
        server.release.set()
        assert await lab.service.requeue(job_id) == 2
        await lab.until(lambda: lab.resources(job_id)["b"].state == "completed")


@in_loop
async def test_a_job_that_has_ended_cannot_be_held(tmp_path: Path) -> None:
    async with hostile_server() as server, laboratory(tmp_path, port=0) as lab:
        job_id = await lab.submit({"a": server.url("/ok/10")})
        await lab.ended(job_id)
        async with listening(lab.service) as url, JobsClient(url) as client:
            for hold in (client.cancel, client.pause, client.resume):
                with pytest.raises(ServiceError, match="is completed") as caught:
                    await hold(job_id)
                assert caught.value.status == 409


@in_loop
async def test_a_ledger_of_before_knows_jobs_that_are_held(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    async with open_ledger(str(path)) as ledger:
        await ledger.queue("j", "photos", "", "manifests/j", ["a"])
    with sqlite3.connect(path) as connection:  # as version 1 had it
        connection.execute("ALTER TABLE jobs DROP COLUMN bytes")
        connection.execute("ALTER TABLE jobs DROP COLUMN held")
        connection.execute("ALTER TABLE jobs DROP COLUMN held_ms")
        connection.execute("PRAGMA user_version = 1")
        assert connection.execute("PRAGMA application_id").fetchone()[0] == APPLICATION
    connection.close()
    async with open_ledger(str(path)) as ledger:
        job = await ledger.fold_control("j", "paused", 5)
        assert job is not None
        assert job.state == "paused"
        assert await ledger.fold_control("j", "", 4) is None, "older than what is known"
