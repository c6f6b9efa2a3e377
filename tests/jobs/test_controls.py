"""Jobs that operators cancel, pause and resume: no worker downloads what is cancelled, whoever dies in between."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from slipstream.bus import BusError, Unsupported
from slipstream.jobs import task_runner
from slipstream.jobs.client import JobsClient, ServiceError
from slipstream.jobs.clock import now_ms
from slipstream.jobs.controls import Controls, Word
from slipstream.jobs.follower import Follower
from slipstream.jobs.ledger import open_ledger
from slipstream.jobs.ledger.schema import APPLICATION
from slipstream.jobs.messages import DownloadTask, JobState, JobStatus, encode
from slipstream.jobs.refusal import Refused
from slipstream.jobs.server import listening
from slipstream.jobs.service import Service
from slipstream.jobs.task_runner import paused_ms
from tests.bus.sites import shared_site
from tests.client.loop import in_loop
from tests.jobs.hostile_server import hostile_server
from tests.jobs.lab import Lab, laboratory
from tests.run_services import RunServices


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
    monkeypatch.setattr(task_runner, "PAUSED_MS_MIN", 20)
    monkeypatch.setattr(task_runner, "PAUSED_MS_MAX", 20)
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
async def test_a_worker_that_is_late_does_what_was_requeued_and_not_what_was_cancelled(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bus = {"driver": "embedded", "data": str(tmp_path / "bus")}
    async with hostile_server() as server:
        async with laboratory(tmp_path, worker=False, bus=bus) as lab:
            job_id = await lab.submit({"a": server.url("/ok/10")})
            await lab.service.control(job_id, "cancelled")
        deaf = asyncio.Event()
        monkeypatch.setattr(Follower, "run", lambda follower: deaf.wait())
        async with laboratory(tmp_path, bus=bus, ledger=str(tmp_path / "jobs.db")) as lab:
            registry = lab.service.bus.registry
            assert registry is not None
            stopped = {"outcome": "cancelled", "code": ""}
            await lab.until(lambda: registry.get_sample_value("jobs_tasks_total", stopped) == 1)
            assert await lab.service.requeue(job_id) == 1
            while not server.paths:
                await asyncio.sleep(0.01)


@in_loop
async def test_a_requeue_that_cannot_be_done_leaves_the_job_cancelled_and_can_be_repeated(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with laboratory(tmp_path, worker=False, port=0) as lab:
        service = lab.service
        job_id = await lab.submit({"a": "http://127.0.0.1:1/", "b": "http://127.0.0.1:1/"})
        await service.control(job_id, "cancelled")
        found = service.ledger.job(job_id)
        assert found is not None
        stored = tmp_path / "objects" / found.manifest_key
        kept = stored.read_bytes()

        async def away(*_: object) -> None:
            raise BusError("away")

        async with listening(service) as url, JobsClient(url) as client:
            stored.unlink()
            with pytest.raises(ServiceError, match="submit the job again") as gone:
                await client.requeue(job_id)
            stored.write_bytes(kept)
            with monkeypatch.context() as patch:
                patch.setattr(service.ingress, "_tasks", away)
                with pytest.raises(ServiceError, match="the handler of crawl failed") as failed:
                    await client.requeue(job_id)
            assert (gone.value.status, failed.value.code) == (409, "HANDLER_FAILED")
            with monkeypatch.context() as patch:
                patch.setattr(service, "_hold", away)
                with pytest.raises(ServiceError, match="away"):
                    await client.requeue(job_id)
            assert (await client.job(job_id)).state == "cancelled"
            assert (await client.requeue(job_id)).tasks == 2
            assert len(await lab.tasks()) == 4, "the tasks that were published by then are not published again"
            with pytest.raises(ServiceError, match="force") as needless:
                await client.requeue(job_id)
            assert needless.value.status == 409
            assert (await client.requeue(job_id, force=True)).tasks == 2
            await service.control(job_id, "paused")
            assert (await client.requeue(job_id)).tasks == 0
            assert (await client.job(job_id)).state == "queued"
            assert len(await lab.tasks()) == 6, "the tasks of a paused job are in the stream"
            assert [job.job_id for job in (await client.jobs(state="cancelled")).jobs] == []


@in_loop
async def test_a_job_that_is_still_being_published_is_not_requeued(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def away(*_: object) -> None:
        raise BusError("away")

    async with laboratory(tmp_path, worker=False) as lab:
        with monkeypatch.context() as patch:
            patch.setattr(lab.service.bus, "publish_all", away)
            with pytest.raises(Refused) as unpublished:
                await lab.submit({"a": "http://127.0.0.1:1/"})
            with pytest.raises(Refused, match="being published"):
                await lab.service.requeue(unpublished.value.job_id, force=True)


@in_loop
async def test_a_decision_from_the_end_of_time_about_anything_stops_nothing(tmp_path: Path) -> None:
    async with laboratory(tmp_path, worker=False) as lab:
        job_id = await lab.submit({"a": "http://127.0.0.1:1/"})
        paused = JobState.JOB_STATE_PAUSED
        for name, state in (("j" * 10_000, paused), (job_id, 99), (job_id, paused)):
            status = JobStatus(job_id=name, state=state, timestamp_ms=2**64 - 1)  # type: ignore[arg-type]
            await lab.service.bus.publish("fetchbox.jobs.control", encode(status))
        await lab.told(job_id, paused)
        assert (await lab.service.control(job_id, "")).state == "queued"
        async with Controls(lab.service.bus, "fetchbox.jobs.control").running() as again:
            assert again.held(job_id) == "", "a process that reads all of it comes to the same"
            assert again.held("j" * 10_000) == ""


@in_loop
async def test_decisions_are_followed_on_a_stream_that_was_made_anew(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    topic = "fetchbox.jobs.control"

    async def say(lab: Lab, name: str) -> None:
        status = JobStatus(job_id=name, state=JobState.JOB_STATE_PAUSED, timestamp_ms=now_ms())
        await lab.service.bus.publish(topic, encode(status))

    async with laboratory(tmp_path, worker=False) as lab:
        for name in "abc":
            await say(lab, name)
        async with Controls(lab.service.bus, topic).running() as controls:
            await lab.service.bus.native.perform(lambda broker, _: broker.delete_topic(topic))
            await lab.service.bus.ensure_topic(topic, 1)
            await say(lab, "d")
            await lab.until(lambda: controls.held("d") == "paused")
            assert controls.held("a") == "paused"
            monkeypatch.setattr("slipstream.jobs.controls.DECISIONS_MAX", 2)
            for name in "ef":
                await say(lab, name)
            await lab.until(lambda: controls.held("f") == "paused")
            assert [name for name in "abcdef" if controls.held(name)] == ["c", "d", "e", "f"], "memory is bounded"


@in_loop
async def test_a_job_that_was_forgotten_does_not_come_back_with_the_decision_about_it() -> None:
    async with open_ledger(":memory:") as ledger:
        assert await ledger.fold_control("j", "cancelled", 5) is None
        assert ledger.counts() == {}
        ledger.words = lambda job_id: Word(5, "cancelled")
        job = await ledger.fold_status(JobStatus(job_id="j", resources_total=1, timestamp_ms=7))
        assert job is not None
        assert job.state == "cancelled", "one that a new ledger learns of later has it"


@in_loop
async def test_core_nats_has_no_log_and_says_so(services: RunServices, prefix: str, tmp_path: Path) -> None:
    with contextlib.closing(shared_site("nats", services)) as site:
        bus = {**site.settings(), "nats_jetstream": False, "prefix": prefix}
        async with laboratory(tmp_path, worker=False, bus=bus) as lab:
            job_id = await lab.submit({"a": "http://127.0.0.1:1/"})
            with pytest.raises(Unsupported, match="keeps no log"):
                await lab.service.control(job_id, "cancelled")
            job = lab.service.ledger.job(job_id)
            assert job is not None
            assert job.state == "queued"


def test_a_task_of_a_paused_job_is_looked_at_less_and_less() -> None:
    assert paused_ms(Word(now_ms(), "paused")) == 10_000
    assert 60_000 <= paused_ms(Word(now_ms() - 60_000, "paused")) < 70_000
    assert paused_ms(Word(0, "paused")) == 300_000


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
