"""Jobs that were left in the middle: all that can be finished are, and what is told of them is in order."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from slipstream.bus import Draft, PublishFailed
from slipstream.bus.bus import Bus
from slipstream.jobs.handler import Job, JobHandler
from slipstream.jobs.ledger import Ledger
from slipstream.jobs.manifest import Manifest
from slipstream.jobs.messages import DownloadTask, JobState
from slipstream.jobs.refusal import Refused
from tests.client.loop import in_loop
from tests.jobs.hostile_server import hostile_server
from tests.jobs.lab import Lab, laboratory

URLS = {"a": "http://127.0.0.1:1/", "b": "http://127.0.0.1:1/"}


async def leave(lab: Lab, count: int) -> list[str]:
    """Jobs whose tasks could not be published."""
    left = []
    for _ in range(count):
        with pytest.raises(Refused) as refused:
            await lab.submit(URLS)
        left.append(refused.value.job_id)
    return left


@pytest.mark.parametrize("trouble", ["a bug", "a limit"])
@in_loop
async def test_one_that_cannot_be_finished_keeps_no_other_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    async def away(*_: object) -> None:
        raise PublishFailed("nobody is there")

    async with laboratory(tmp_path, worker=False) as lab:
        monkeypatch.setattr(Bus, "publish_all", away)
        first, second = await leave(lab, 2)
    monkeypatch.undo()

    class Picky(JobHandler):
        def build_tasks(self, job: Job, manifest: Manifest) -> list[DownloadTask]:
            if job.job_id == first and trouble == "a bug":
                raise ZeroDivisionError
            return [self.build_task(job, manifest, resource) for resource in manifest.resources]

    monkeypatch.setattr("slipstream.jobs.handler.JobHandler", Picky)
    async with laboratory(tmp_path, worker=False, max_resources=1) as lab:
        await lab.until(lambda: lab.service.ledger.stage(second) == "published")
        if trouble == "a limit":
            await lab.until(lambda: lab.service.ledger.stage(first) == "published")


@in_loop
async def test_a_job_that_ends_before_its_ingress_goes_on_is_not_told_to_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish_all, ended = Bus.publish_all, asyncio.Event()

    async def slow_to_return(bus: Bus, topic: str, drafts: Sequence[Draft]) -> None:
        await publish_all(bus, topic, drafts)
        if topic.endswith("jobs.tasks"):
            await ended.wait()

    async with hostile_server() as server, laboratory(tmp_path) as lab:
        monkeypatch.setattr(Bus, "publish_all", slow_to_return)
        submitting = asyncio.create_task(lab.submit({"a": server.url("/ok/10")}))
        ledger: Ledger = lab.service.ledger
        await lab.until(lambda: any(job.is_ended for job in ledger.jobs()) and not ledger.untold())
        ended.set()
        states = [status.state for status in await lab.statuses(await submitting)]
        assert states[0] == JobState.JOB_STATE_QUEUED
        assert states[-1] == JobState.JOB_STATE_COMPLETED
        assert states.count(JobState.JOB_STATE_QUEUED) == 1
