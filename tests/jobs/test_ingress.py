"""The ingress: a job is taken as a whole or not at all, wherever it is interrupted and however often it is repeated."""

from __future__ import annotations

import asyncio
import json
import uuid
from pathlib import Path
from typing import Any

import pytest

from slipstream.bus import Bus, BusUnavailable
from slipstream.jobs import ingress
from slipstream.jobs.handler import Job, JobHandler
from slipstream.jobs.ledger import Ledger, LedgerUnavailable
from slipstream.jobs.manifest import Manifest, Resource
from slipstream.jobs.messages import DownloadTask, JobState
from slipstream.jobs.refusal import RefusalCode, Refused
from slipstream.jobs.storage import Storage, StorageFailed
from tests.client.loop import in_loop
from tests.jobs.hostile_server import hostile_server
from tests.jobs.lab import laboratory, manifest

FIVE = [f"r{number}" for number in range(5)]


class Crash(Exception):
    """What nothing catches: as good as a process that died here."""


def crash(patch: pytest.MonkeyPatch, owner: type, name: str, *, after_calls: int = 0, done: bool) -> None:
    """At the call after so many: before it does anything, or when it is done."""
    original = getattr(owner, name)
    calls = 0

    async def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls <= after_calls:
            return await original(*args, **kwargs)
        if done:
            await original(*args, **kwargs)
        raise Crash(name)

    patch.setattr(owner, name, call)


STEPS: dict[str, dict[str, Any]] = {
    "reserving": {"owner": Ledger, "name": "reserve", "done": True},
    "storing": {"owner": Storage, "name": "put", "done": False},
    "stored": {"owner": Storage, "name": "put", "done": True},
    "queueing": {"owner": Ledger, "name": "queue", "done": False},
    "queued": {"owner": Ledger, "name": "queue", "done": True},
    "publishing": {"owner": Bus, "name": "publish_all", "done": False},
    "after some tasks": {"owner": Bus, "name": "publish_all", "done": False, "after_calls": 1},
    "after more tasks": {"owner": Bus, "name": "publish_all", "done": False, "after_calls": 2},
    "after all tasks": {"owner": Bus, "name": "publish_all", "done": True, "after_calls": 2},
    "status": {"owner": Bus, "name": "publish", "done": False},
    "told": {"owner": Bus, "name": "publish", "done": True},
    "noting": {"owner": Ledger, "name": "published", "done": False},
    "noted": {"owner": Ledger, "name": "published", "done": True},
}
FINISHED_WITHOUT_KEY = set(STEPS) - {"reserving", "storing", "stored", "queueing"}


def _manifests(folder: Path) -> set[str]:
    return {path.parent.name for path in (folder / "objects").rglob("metadata.json")}


@pytest.mark.parametrize("key", ["crawl-17", None], ids=["key", "no key"])
@pytest.mark.parametrize("step", STEPS)
@in_loop
async def test_a_crash_at_any_step_leaves_no_half_job(step: str, key: str | None, tmp_path: Path) -> None:
    bus = {"driver": "embedded", "data": str(tmp_path / "bus")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ingress, "TOGETHER", 2)
        async with hostile_server() as server:
            urls = {name: server.url(f"/ok/1?{name}") for name in FIVE}
            async with laboratory(tmp_path, worker=False, bus=bus) as lab:
                with pytest.MonkeyPatch.context() as breaking:
                    crash(breaking, **STEPS[step])
                    with pytest.raises(Crash):
                        await lab.submit(urls, idempotency_key=key)
            async with laboratory(tmp_path, bus=bus) as lab:
                expected = 1
                if key is not None:
                    job_id = await lab.submit(urls, idempotency_key=key)
                    assert await lab.submit(urls, idempotency_key=key) == job_id
                elif step in FINISHED_WITHOUT_KEY:
                    job_id = lab.service.ledger.jobs()[0].job_id
                else:
                    expected = 0
                if expected:
                    job = await lab.ended(job_id)
                    assert (job.state, job.resources_total, job.resources_completed) == ("completed", 5, 5)
                    await lab.until(lambda: not lab.service.ledger.unpublished())
                tasks = await lab.tasks()
                assert sorted({task.resource_id for task in tasks}) == (FIVE if expected else [])
                jobs = {job.job_id for job in lab.service.ledger.jobs()}
                assert len(jobs) == expected
                assert _manifests(tmp_path) == jobs
                assert lab.service.ledger.unpublished() == []
                if expected:
                    states = [status.state for status in await lab.statuses(job_id)]
                    assert JobState.JOB_STATE_QUEUED in states


@in_loop
async def test_the_same_request_five_times_at_once_is_one_job(tmp_path: Path) -> None:
    async with hostile_server() as server, laboratory(tmp_path, worker=False) as lab:
        urls = {"a": server.url("/ok/1"), "b": server.url("/ok/2")}
        jobs = await asyncio.gather(*(lab.submit(urls, idempotency_key="k") for _ in range(5)))
        assert len(set(jobs)) == 1
        assert [job.job_id for job in lab.service.ledger.jobs()] == [jobs[0]]
        assert sorted(task.resource_id for task in await lab.tasks()) == ["a", "b"]
        assert _manifests(tmp_path) == {jobs[0]}
        assert uuid.UUID(jobs[0]).version == 7


@in_loop
async def test_a_key_belongs_to_a_tenant_and_a_type_and_to_one_manifest(tmp_path: Path) -> None:
    async with laboratory(tmp_path, worker=False) as lab:
        urls = {"a": "http://example.invalid/"}
        first = await lab.submit(urls, idempotency_key="k")
        others = [
            await lab.submit(urls, idempotency_key="k", tenant="shop"),
            await lab.submit(urls, "photos", idempotency_key="k"),
            await lab.submit(urls),
            await lab.submit(urls),
        ]
        assert len({first, *others}) == 5
        with pytest.raises(Refused, match="used for another manifest") as refused:
            await lab.submit({"b": "http://example.invalid/"}, idempotency_key="k")
        assert (refused.value.code, refused.value.job_id) == (RefusalCode.INVALID_PAYLOAD, first)


@in_loop
async def test_a_storage_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    urls = {"a": "http://example.invalid/"}
    async with laboratory(tmp_path, worker=False) as lab:
        original = Storage.put

        async def put(self: Storage, *args: Any, **kwargs: Any) -> None:
            await original(self, *args, **kwargs)
            raise StorageFailed("the answer was lost")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Storage, "put", put)
            for key in (None, "k"):
                with pytest.raises(Refused, match="the answer was lost") as refused:
                    await lab.submit(urls, idempotency_key=key)
                assert refused.value.code.status == 502
        assert lab.service.ledger.jobs() == []
        assert len(lab.service.ledger.unpublished()) == 1, "the one with a key can be asked for again"
        job_id = await lab.submit(urls, idempotency_key="k")
        assert _manifests(tmp_path) == {job_id}


@in_loop
async def test_a_bus_that_is_away_is_503_and_the_job_is_finished_when_it_is_back(tmp_path: Path) -> None:
    urls = {"a": "http://example.invalid/"}
    async with laboratory(tmp_path, worker=False) as lab:

        async def away(*args: Any, **kwargs: Any) -> None:
            raise BusUnavailable("nobody there")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Bus, "publish_all", away)
            with pytest.raises(Refused, match="nobody there") as refused:
                await lab.submit(urls)
        assert (refused.value.code, refused.value.code.status) == (RefusalCode.PUBLISH_FAILED, 503)
        await lab.until(lambda: not lab.service.ledger.unpublished())
        assert [task.job_id for task in await lab.tasks()] == [refused.value.job_id]


@in_loop
async def test_a_ledger_that_cannot_be_written_is_503(tmp_path: Path) -> None:
    async with laboratory(tmp_path, worker=False) as lab:

        async def full(*args: Any) -> None:
            raise LedgerUnavailable("the disk is full")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Ledger, "reserve", full)
            with pytest.raises(Refused, match="the disk is full") as refused:
                await lab.submit({"a": "http://example.invalid/"})
        assert refused.value.code.status == 503


class Growing(JobHandler):
    """Adds a resource each time, and fails at the end of some: to prepare a manifest twice would show."""

    def prepare_manifest(self, job: Job, manifest: Manifest) -> Manifest:
        manifest.resources.append(Resource(id=f"extra-{len(manifest.resources)}", url="http://example.invalid/"))
        return manifest

    def build_tasks(self, job: Job, manifest: Manifest) -> list[DownloadTask]:
        if job.tenant in FAILING:
            raise ValueError("no tasks today")
        return [self.build_task(job, manifest, resource) for resource in manifest.resources]


FAILING: set[str] = set()


def _growing(folder: Path) -> str:
    path = folder / "jobs.toml"
    path.write_text('[types.crawl]\nhandler = "tests.jobs.test_ingress:Growing"\n')
    return str(path)


@in_loop
async def test_a_repeat_gives_the_handler_what_was_sent_and_not_what_it_made_of_it(tmp_path: Path) -> None:
    urls = {"a": "http://example.invalid/"}
    config = _growing(tmp_path)
    async with laboratory(tmp_path, worker=False, config=config) as lab:
        with pytest.MonkeyPatch.context() as patch:
            crash(patch, Storage, "put", done=True)
            with pytest.raises(Crash):
                await lab.submit(urls, idempotency_key="k")
        for _ in range(2):
            accepted = await lab.service.ingress.submit("crawl", manifest(urls), idempotency_key="k")
            assert accepted.resource_count == 2
        stored = json.loads((tmp_path / "objects" / accepted.manifest_key).read_bytes())
        assert [each["id"] for each in stored["resources"]] == ["a", "extra-1"]
        assert sorted(task.resource_id for task in await lab.tasks()) == ["a", "extra-1"]


@in_loop
async def test_a_job_that_cannot_be_finished_keeps_no_other_waiting(tmp_path: Path) -> None:
    bus = {"driver": "embedded", "data": str(tmp_path / "bus")}
    config = _growing(tmp_path)
    urls = {"a": "http://example.invalid/"}
    async with laboratory(tmp_path, worker=False, bus=bus, config=config) as lab:
        with pytest.MonkeyPatch.context() as patch:
            crash(patch, Bus, "publish_all", done=False)
            for tenant in ("broken", "gone", "well"):
                with pytest.raises(Crash):
                    await lab.submit(urls, tenant=tenant)
        jobs = {each.tenant: each.job_id for each in lab.service.ledger.unpublished()}
        (tmp_path / "objects" / "manifests" / "crawl" / jobs["gone"] / "metadata.json").unlink()
    FAILING.add("broken")
    try:
        async with laboratory(tmp_path, worker=False, bus=bus, config=config) as lab:
            await lab.until(lambda: len(lab.service.ledger.unpublished()) == 2)
            assert {task.job_id for task in await lab.tasks()} == {jobs["well"]}
    finally:
        FAILING.clear()


@in_loop
async def test_a_handler_that_fails_is_no_fault_of_the_manifest(tmp_path: Path) -> None:
    async with laboratory(tmp_path, worker=False, config=_growing(tmp_path)) as lab:
        FAILING.add("broken")
        try:
            with pytest.raises(Refused, match="ValueError: no tasks today") as refused:
                await lab.submit({"a": "http://example.invalid/"}, tenant="broken")
        finally:
            FAILING.clear()
        assert (refused.value.code, refused.value.code.status) == (RefusalCode.HANDLER_FAILED, 500)
        assert lab.service.ledger.unpublished() == []
        assert _manifests(tmp_path) == set()
