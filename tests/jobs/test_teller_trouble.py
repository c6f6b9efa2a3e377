"""What the teller must get over: handlers that take for ever, and errors that nobody foresaw."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from slipstream.bus.bus import Bus
from slipstream.jobs.handler import JobHandler
from slipstream.jobs.messages import DownloadTask, JobState, JobStatus
from slipstream.jobs.reporter import Reporter
from tests.client.loop import in_loop
from tests.jobs.lab import Lab, laboratory


async def end(lab: Lab, job_id: str) -> None:
    async with Reporter(lab.service.bus, "fetchbox.jobs.logs").running() as reporter:
        await reporter.tell(DownloadTask(job_id=job_id, resource_id="a"), "stored", "stored", {})


async def told(lab: Lab, job_id: str) -> None:
    while not any(each.state == JobState.JOB_STATE_COMPLETED for each in await lab.statuses(job_id)):
        await asyncio.sleep(0.01)


@in_loop
async def test_a_handler_that_takes_for_ever_keeps_no_status_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = asyncio.Event()

    async def finalize(_: JobHandler, __: JobStatus) -> None:
        began.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(JobHandler, "finalize_job", finalize)
    async with laboratory(tmp_path, worker=False) as lab:
        await end(lab, "j-1")
        await began.wait()
        await end(lab, "j-2")
        await told(lab, "j-2")


@in_loop
async def test_an_error_that_nobody_foresaw_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish, failed = Bus.publish, asyncio.Event()

    async def broken(bus: Bus, topic: str, *arguments: object, **others: object) -> str:
        if topic.endswith("jobs.status") and not failed.is_set():
            failed.set()
            raise ZeroDivisionError
        return await publish(bus, topic, *arguments, **others)  # type: ignore[arg-type]

    monkeypatch.setattr(Bus, "publish", broken)
    async with laboratory(tmp_path, worker=False) as lab:
        await end(lab, "j-1")
        await failed.wait()
        await told(lab, "j-1")
