"""What executors tell of a bundle: much at a time, and all of it safe when the bundle is over."""

from __future__ import annotations

import asyncio

import pytest

from slipstream.bus import Bus, BusClosed, open_bus
from slipstream.jobs.messages import DownloadTask
from slipstream.pipeline.downloads.gathering import GatheringReporter
from tests.client.loop import in_loop

TASK = DownloadTask(job_id="j", resource_id="a", url="http://192.0.2.7/")
LOGS = "logs"


async def _stored(bus: Bus) -> int:
    return len([stored async for stored in bus.read(LOGS, 0)])


@in_loop
async def test_nobody_waits_for_his_own_words_and_after_a_flush_all_are_stored() -> None:
    async with open_bus(driver="memory") as bus:
        await bus.ensure_topic(LOGS)
        reporter = GatheringReporter(bus, LOGS)
        async with reporter.running():
            for _ in range(3):
                await reporter.tell(TASK, "stored", "stored", {})
            assert await _stored(bus) == 0
            await asyncio.sleep(0)  # the first may be on their way
            reporter.mention(TASK, "retry", "once more", {})
            await reporter.flush()
            assert await _stored(bus) == 4
            await reporter.flush()  # and nothing to wait for


@in_loop
async def test_without_a_flush_they_are_told_soon() -> None:
    async with open_bus(driver="memory") as bus:
        await bus.ensure_topic(LOGS)
        reporter = GatheringReporter(bus, LOGS)
        async with reporter.running():
            await reporter.mention(TASK, "started", "started", {})
            assert await _stored(bus) == 1


@in_loop
async def test_a_flush_says_what_the_bus_did_not_take_and_says_it_once() -> None:
    async with open_bus(driver="memory") as bus:
        pass  # and is closed
    reporter = GatheringReporter(bus, LOGS)
    async with reporter.running():
        await reporter.tell(TASK, "stored", "stored", {})
        with pytest.raises(BusClosed):
            await reporter.flush()
        await reporter.flush()
