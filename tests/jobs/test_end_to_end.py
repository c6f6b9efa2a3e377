"""Jobs from manifest to object, against a server that misbehaves: each resource ends where it should."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from slipstream.bus import Bus, Unsupported
from slipstream.jobs.config import JobConfig
from slipstream.jobs.dead_letters import Selection
from slipstream.jobs.failure import Code
from slipstream.jobs.messages import JobState
from slipstream.jobs.storage import Storages
from slipstream.jobs.worker import Worker
from tests.bus.sites.site import Site
from tests.client.loop import in_loop
from tests.jobs.hostile_server import body, hostile_server
from tests.jobs.lab import fast, laboratory


def _manifest(resources: list[dict[str, str]]) -> bytes:
    return json.dumps({"manifest_version": "v1", "resources": resources}).encode()


@contextlib.asynccontextmanager
async def _worker(folder: Path, bus: Bus) -> AsyncIterator[None]:
    settings = fast(folder)
    storages = Storages(settings.storage, JobConfig(), sync=False)
    try:
        async with Worker(settings, JobConfig(), storages).running(bus):
            yield
    finally:
        storages.close()


FORBIDDEN = "http://169.254.169.254/latest/meta-data"

ENDS: dict[str, tuple[str, str, int]] = {
    # what is asked for: path, how it ends, attempts
    "well": ("/ok/5000", "", 1),
    "empty": ("/ok/0", "", 1),
    "large": ("/ok/3000000", "", 1),
    "chunked": ("/chunked/70000", "", 1),
    "compressed": ("/gzip/5000", "", 1),
    "500 twice": ("/flaky/2/a", "", 3),
    "reset in mid-body": ("/reset/40000?size=100000", "", 1),
    "reset, no ranges": ("/reset-whole/1000?size=5000", "", 1),
    "429": ("/retry-after/1/a", "", 1),
    "redirected": ("/redirect?to=/ok/100", "", 1),
    "always 500": ("/status/503", Code.DOWNLOAD_HTTP_STATUS, 3),
    "404": ("/status/404", Code.DOWNLOAD_HTTP_STATUS, 1),
    "forbidden by redirect": (f"/redirect?to={FORBIDDEN}", Code.DOWNLOAD_FORBIDDEN_ADDRESS, 1),
    "forbidden by name": ("http://[::1]:1/", Code.DOWNLOAD_FORBIDDEN_ADDRESS, 1),
    "loop": ("/loop", Code.DOWNLOAD_TOO_MANY_REDIRECTS, 1),
    "truncated": ("/truncated/100?size=200", Code.DOWNLOAD_RESET, 3),
    "gzip bomb": ("/bomb", Code.DOWNLOAD_BOMB, 1),
    "huge": ("/huge", Code.DOWNLOAD_TOO_LARGE, 1),
    "nobody there": ("http://127.0.0.1:1/", Code.DOWNLOAD_CONNECT, 3),
    "no such name": ("http://nowhere.invalid/", Code.DOWNLOAD_DNS, 3),
}


@in_loop
async def test_each_resource_ends_where_it_should(site: Site, prefix: str, tmp_path: Path) -> None:
    async with (
        hostile_server() as server,
        laboratory(tmp_path, bus={**site.settings(), "prefix": prefix}, max_attempts=3) as lab,
    ):
        urls = {name: path if "://" in path[:8] else server.url(path) for name, (path, _, _) in ENDS.items()}
        job_id = await lab.submit(urls, tenant="shop")
        job = await lab.ended(job_id)
        stored = [name for name, (_, code, _) in ENDS.items() if not code]
        assert (job.state, job.resources_completed, job.resources_failed) == (
            "partial",
            len(stored),
            len(ENDS) - len(stored),
        )
        resources = lab.resources(job_id)
        assert {name: (each.error_code, each.attempts) for name, each in resources.items()} == {
            name: (code, attempts) for name, (_, code, attempts) in ENDS.items()
        }
        assert len(lab.objects()) == len(stored)
        for name in stored:
            content = lab.object(resources[name].key)
            assert len(content) == resources[name].size
            assert hashlib.sha256(content).hexdigest() == resources[name].sha256
        assert lab.object(resources["reset in mid-body"].key) == body(100_000)
        assert lab.object(resources["compressed"].key) == body(5000)
        if not site.reads:
            with pytest.raises(Unsupported):
                await lab.letters()
            return
        letters = await lab.letters()
        assert {letter.task.resource_id: letter.failure_code for letter in letters} == {
            name: code for name, (_, code, _) in ENDS.items() if code
        }
        assert {letter.task.tenant for letter in letters} == {"shop"}
        assert all(letter.failure_message and letter.failed_at_ms for letter in letters)
        states = [status.state for status in await lab.told(job_id, JobState.JOB_STATE_PARTIAL)]
        assert states[0] == JobState.JOB_STATE_QUEUED
        assert set(states[1:-1]) <= {JobState.JOB_STATE_IN_PROGRESS, JobState.JOB_STATE_PARTIAL}
        steps = [log.fields["step"] for log in await lab.logs(job_id) if log.resource_id == "500 twice"]
        assert steps == ["started", "retry", "retry", "downloaded", "stored"]


@in_loop
async def test_what_takes_too_long_is_tried_as_often_as_anything(tmp_path: Path) -> None:
    async with hostile_server() as server, laboratory(tmp_path, max_attempts=3, total_timeout_ms=1_500) as lab:
        urls = {"slow bytes": server.url("/drip"), "hangs": server.url("/hang"), "well": server.url("/ok/1")}
        job = await lab.ended(await lab.submit(urls))
        assert job.state == "partial"
        ends = {name: (each.error_code, each.attempts) for name, each in lab.resources(job.job_id).items()}
        timeout = (Code.DOWNLOAD_TIMEOUT, 3)
        assert ends == {"slow bytes": timeout, "hangs": timeout, "well": ("", 1)}
        letters = {letter.task.resource_id: letter.failure_code for letter in await lab.letters()}
        assert letters == dict.fromkeys(("slow bytes", "hangs"), Code.DOWNLOAD_TIMEOUT)


@in_loop
async def test_a_wrong_checksum_is_a_dead_letter_and_leaves_no_object(tmp_path: Path) -> None:
    async with hostile_server() as server, laboratory(tmp_path) as lab:
        right = hashlib.sha256(body(100)).hexdigest()
        resources = [
            {"id": "right", "url": server.url("/ok/100"), "checksum": f"sha256:{right}"},
            {"id": "wrong", "url": server.url("/ok/101"), "checksum": f"sha256:{right}"},
        ]
        accepted = await lab.service.ingress.submit("crawl", _manifest(resources))
        await lab.ended(accepted.job_id)
        ends = {name: each.error_code for name, each in lab.resources(accepted.job_id).items()}
        assert ends == {"right": "", "wrong": Code.DOWNLOAD_CHECKSUM}
        assert [key.rpartition("/")[2] for key in lab.objects()] == ["right"]


@in_loop
async def test_dead_letters_are_replayed_once_and_the_job_is_complete_then(tmp_path: Path) -> None:
    async with hostile_server() as server, laboratory(tmp_path, max_attempts=2) as lab:
        job_id = await lab.submit(
            {"a": server.url("/ok/10"), "b": server.url("/flaky/2/b"), "c": server.url("/status/404")}
        )
        job = await lab.ended(job_id)
        assert (job.state, job.resources_failed) == ("partial", 2)
        replayed = await lab.service.dead_letters.replay(Selection(job_id=job_id, code="DOWNLOAD_"))
        assert sorted(letter.resource_id for letter in replayed.letters) == ["b", "c"]
        await lab.until(lambda: lab.resources(job_id)["b"].state == "completed")
        await lab.buried(3)
        job = await lab.ended(job_id)
        assert (job.state, job.resources_completed, job.resources_failed) == ("partial", 2, 1)
        letter = next(each for each in await lab.letters() if each.task.resource_id == "b")
        assert letter.task.attempt == 2
        left = [each async for each in lab.service.dead_letters.find(Selection(job_id=job_id))]
        assert [each.resource_id for each in left] == ["c"]  # its second


@in_loop
async def test_a_task_that_is_repeated_counts_once(tmp_path: Path) -> None:
    async with hostile_server() as server, laboratory(tmp_path, worker=False) as lab:
        job_id = await lab.submit({"a": server.url("/ok/10"), "b": server.url("/status/404")})
        topic = "fetchbox.jobs.tasks"
        info = await lab.service.bus.topic(topic)
        assert info is not None
        tasks = [
            stored for partition in range(info.partitions) async for stored in lab.service.bus.read(topic, partition)
        ]
        assert len(tasks) == 2
        for stored in tasks * 3:
            await lab.service.bus.publish(topic, stored.data, key=stored.key)
        async with _worker(lab.folder, lab.service.bus):
            while server.paths["/ok/10"] < 4:
                server.arrived.clear()
                await server.arrived.wait()
            await lab.buried(4)
            job = await lab.ended(job_id)
        assert (job.resources_total, job.resources_completed, job.resources_failed) == (2, 1, 1)
        assert len(lab.objects()) == 1
