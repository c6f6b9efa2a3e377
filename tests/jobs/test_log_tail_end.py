"""When a tail of logs ends, though its partition goes on."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from slipstream.bus import InvalidArgument, Stored
from slipstream.bus.bus import Bus
from slipstream.jobs.messages import DownloadTask
from slipstream.jobs.reporter import Reporter
from tests.client.loop import in_loop
from tests.jobs.lab import laboratory

TOPIC = "fetchbox.jobs.logs"


@in_loop
async def test_a_tail_ends_with_its_job_though_others_go_on(tmp_path: Path) -> None:
    async with laboratory(tmp_path, worker=False) as lab, Reporter(lab.service.bus, TOPIC).running() as reporter:
        await reporter.tell(DownloadTask(job_id="j-1", resource_id="a"), "stored", "stored", {})
        job = await lab.ended("j-1")

        async def chatter() -> None:
            """Of others, with the same key, and so in the same partition; never silent for long."""
            while True:
                await lab.service.bus.publish(TOPIC, b"", key="j-1")
                await asyncio.sleep(0.01)

        chatting = asyncio.create_task(chatter())
        try:
            async with asyncio.timeout(10):
                tail = lab.service.log_tail.logs(job, follow=True)
                found = [each async for each in tail if each is not None]
        finally:
            chatting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await chatting
        assert [log.message for _, log in found] == ["stored"]


@in_loop
async def test_of_logs_whose_first_are_too_old_to_be_there_the_rest_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Bus.read

    async def aged(
        bus: Bus, topic: str, partition: int = 0, start: int = 0, end: int | None = None
    ) -> AsyncGenerator[Stored, None]:
        if 0 < start < 2:
            raise InvalidArgument("removed by retention: the earliest is 2")
        async for stored in read(bus, topic, partition, max(2, start), end):
            yield stored

    async with laboratory(tmp_path, worker=False) as lab, Reporter(lab.service.bus, TOPIC).running() as reporter:
        await lab.service.bus.publish(TOPIC, b"", key="j-1")
        for resource in ("a", "b"):
            await reporter.tell(DownloadTask(job_id="j-1", resource_id=resource), "stored", resource, {})
        await lab.until(lambda: len(lab.resources("j-1")) == 2)
        job = lab.service.ledger.job("j-1")
        assert job is not None
        monkeypatch.setattr(Bus, "read", aged)
        found = [each async for each in lab.service.log_tail.logs(job) if each is not None]
        assert [log.message for _, log in found] == ["b"]
