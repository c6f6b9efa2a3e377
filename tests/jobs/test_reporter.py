"""Logs on their way to the stream."""

from __future__ import annotations

import asyncio

from slipstream.bus import Bus, BusClosed, open_bus
from slipstream.jobs.messages import DownloadTask
from slipstream.jobs.reporter import Reporter
from tests.client.loop import in_loop

TASK = DownloadTask(job_id="j", resource_id="a", url="http://192.0.2.7/")
LOGS = "logs"


async def _stored(bus: Bus) -> int:
    return len([stored async for stored in bus.read(LOGS, 0)])


@in_loop
async def test_after_a_flush_everything_that_was_mentioned_is_stored() -> None:
    async with open_bus(driver="memory") as bus, Reporter(bus, LOGS).running() as reporter:
        await bus.ensure_topic(LOGS)
        for _ in range(3):
            reporter.mention(TASK, "started", "started", {})
        await asyncio.sleep(0)  # the first are on their way
        reporter.mention(TASK, "retry", "once more", {})
        await reporter.flush()
        assert await _stored(bus) == 4
        await reporter.flush()  # and nothing to wait for


@in_loop
async def test_a_flush_ends_though_the_bus_does_not_take_them() -> None:
    async with open_bus(driver="memory") as bus:
        pass  # and is closed
    async with Reporter(bus, LOGS).running() as reporter:
        told = reporter.mention(TASK, "started", "started", {})
        await reporter.flush()
        assert isinstance(told.exception(), BusClosed)
