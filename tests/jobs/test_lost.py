"""Jobs whose tasks retention has removed: they are found, said, and their tasks are published again."""

from __future__ import annotations

from pathlib import Path

import pytest

from slipstream.cli.jobs_watch import follow, under_way
from slipstream.cli.output import Output
from slipstream.jobs import lost
from slipstream.jobs.client import JobsClient, ServiceError
from slipstream.jobs.clock import now_ms
from slipstream.jobs.config import JobConfig
from slipstream.jobs.messages import DownloadTask, JobStatus, encode
from slipstream.jobs.refusal import Refused
from slipstream.jobs.server import listening
from slipstream.jobs.storage import Storages
from slipstream.jobs.worker import Worker
from tests.client.loop import in_loop
from tests.jobs.hostile_server import hostile_server
from tests.jobs.lab import Lab, laboratory

TASKS = "fetchbox.jobs.tasks"


@pytest.fixture(autouse=True)
def _an_hour_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lost, "now_ms", lambda: now_ms() + 3_600_000)


async def lose_tasks(lab: Lab) -> None:
    """As retention does that finds all of them too old."""
    await lab.service.bus.native.perform(lambda broker, _: broker.delete_topic(TASKS))
    await lab.service.bus.ensure_topic(TASKS, 8)


@in_loop
async def test_a_job_whose_tasks_are_gone_is_said_everywhere_and_requeued(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    async with hostile_server() as server, laboratory(tmp_path, worker=False, port=0) as lab:
        job_id = await lab.submit({"a": server.url("/ok/10"), "b": server.url("/ok/11")})
        service = lab.service
        await service.lost.look()
        assert service.lost.jobs == {}, "its tasks wait for a worker"
        assert (await service.health()).parts["tasks"].status == "ok"
        await lose_tasks(lab)
        await service.lost.look()
        assert service.lost.jobs == {job_id: 2}
        async with listening(service) as url, JobsClient(url) as client:
            assert (await client.job(job_id)).lost_tasks == 2
            assert [job.lost_tasks for job in (await client.jobs()).jobs] == [2]
            assert await follow(client, Output(as_json=False), await under_way(client)) == 1, "it does not end"
            said = capsys.readouterr().out
            assert said == f"{job_id} queued: 0 of 2 completed, 2 lost: slipstream jobs requeue {job_id}\n"
            health = await client.health()
            assert (health.status, health.parts["tasks"].status) == ("ok", "warning"), "the service is ready"
            assert f"slipstream jobs requeue {job_id}" in health.parts["tasks"].reason
            assert (await client.requeue(job_id)).tasks == 2
            assert (await client.job(job_id)).lost_tasks == 0
            with pytest.raises(ServiceError, match="no job"):
                await client.requeue("nobody")
            await client.pause(job_id)
            assert await under_way(client) == [job_id], "a paused job has not ended"
            await client.resume(job_id)
        await service.lost.look()
        assert service.lost.jobs == {}
        storages = Storages(service.settings.storage, JobConfig(), sync=False)
        async with Worker(service.settings, JobConfig(), storages).running(service.bus):
            assert (await lab.ended(job_id)).state == "completed"


@in_loop
async def test_a_requeue_looks_at_once_for_lost_tasks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(lost, "now_ms", now_ms)
    async with laboratory(tmp_path, worker=False) as lab:
        job_id = await lab.submit({"a": "http://127.0.0.1:1/", "b": "http://127.0.0.1:1/"})
        with pytest.raises(Refused, match=r"add --force .* to publish the tasks of its 2 unfinished resources again"):
            await lab.service.requeue(job_id)
        await lose_tasks(lab)
        await lab.service.lost.look()
        assert lab.service.lost.jobs == {}, "something has just happened to the job"
        assert await lab.service.requeue(job_id) == 2


@in_loop
async def test_only_what_has_no_end_is_published_again(tmp_path: Path) -> None:
    async with hostile_server() as server, laboratory(tmp_path) as lab:
        job_id = await lab.submit({"a": server.url("/status/404"), "b": server.url("/hold")})
        await lab.until(lambda: lab.resources(job_id)["a"].state == "failed")
        assert await lab.service.requeue(job_id, force=True) == 1
        server.release.set()
        await lab.ended(job_id)
        with pytest.raises(Refused, match="nothing of it is left to do"):
            await lab.service.requeue(job_id, force=True)


@in_loop
async def test_a_ledger_that_was_made_anew_requeues_what_no_worker_has_begun(tmp_path: Path) -> None:
    bus = {"driver": "embedded", "data": str(tmp_path / "bus")}
    async with laboratory(tmp_path, worker=False, bus=bus) as lab:
        job_id = await lab.submit({"a": "http://127.0.0.1:1/", "b": "http://127.0.0.1:1/"})
    async with laboratory(tmp_path, worker=False, bus=bus, ledger=str(tmp_path / "new.db")) as lab:
        await lab.until(lambda: lab.service.ledger.job(job_id) is not None)
        assert await lab.service.requeue(job_id, force=True) == 2


@in_loop
async def test_tasks_are_lost_if_all_that_the_partition_holds_is_newer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with laboratory(tmp_path, worker=False) as lab:
        service, urls = lab.service, {"a": "http://127.0.0.1:1/"}
        job_id = await lab.submit(urls)
        await lose_tasks(lab)
        later = now_ms() + 5_000

        async def published_later(partition: int) -> int:
            return later

        monkeypatch.setattr(service.lost, "_first_ms", published_later)
        await service.lost.look()
        assert service.lost.jobs == {}, "clocks differ"
        later += lost.GRACE_MS
        await service.lost.look()
        assert service.lost.jobs == {job_id: 1}
        await service.control(job_id, "paused")
        later -= lost.GRACE_MS
        await service.lost.look()
        assert service.lost.jobs == {job_id: 1}, "its tasks do not come back when it is paused"
        with pytest.raises(Refused, match="requeue publishes them again and resumes it"):
            await service.control(job_id, "")
        assert await service.requeue(job_id) == 1
        await service.lost.look()
        assert service.lost.jobs == {}


@in_loop
async def test_a_topic_that_has_been_given_partitions_has_lost_nothing(tmp_path: Path) -> None:
    async with laboratory(tmp_path, worker=False) as lab:
        for _ in range(4):
            await lab.submit({"a": "http://127.0.0.1:1/"})
        await lab.service.bus.adjust_topic(TASKS, partitions=64)
        await lab.service.lost.look()
        assert lab.service.lost.jobs == {}


@in_loop
async def test_what_a_direct_producer_announces_before_its_tasks_is_not_lost(tmp_path: Path) -> None:
    async with laboratory(tmp_path, worker=False) as lab:
        await lab.service.ledger.fold_status(JobStatus(job_id="j", resources_total=2, timestamp_ms=now_ms()))
        await lab.service.lost.look()
        assert lab.service.lost.jobs == {}


@in_loop
async def test_a_job_of_a_direct_producer_has_nothing_to_be_requeued_from(tmp_path: Path) -> None:
    async with laboratory(tmp_path, port=0) as lab:
        task = DownloadTask(job_id="j", resource_id="a", url="http://127.0.0.1:1/")
        await lab.service.bus.publish(TASKS, encode(task), key="j")
        await lab.ended("j")
        async with listening(lab.service) as url, JobsClient(url) as client:
            with pytest.raises(ServiceError, match="only its producer"):
                await client.requeue("j")
