"""What the listener must get over: a bus that is away when it is to start over, and streams that are made anew."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from slipstream.bus import BusUnavailable
from slipstream.bus.bus import Bus
from slipstream.jobs.ledger import Ledger
from slipstream.jobs.messages import DownloadTask
from slipstream.jobs.reporter import Reporter
from tests.client.loop import in_loop
from tests.jobs.lab import Lab, laboratory


async def tell(lab: Lab, job_id: str, resource: str) -> None:
    async with Reporter(lab.service.bus, "fetchbox.jobs.logs").running() as reporter:
        await reporter.tell(DownloadTask(job_id=job_id, resource_id=resource), "stored", "stored", {"bytes": 1})


@in_loop
async def test_streams_that_were_made_anew_are_read_from_their_beginning(tmp_path: Path) -> None:
    """Such as with the broker in memory, and a ledger on disk."""
    async with laboratory(tmp_path, worker=False) as lab:
        for number in range(3):
            await tell(lab, "j-1", f"r-{number}")
        await lab.until(lambda: len(lab.resources("j-1")) == 3)
    async with laboratory(tmp_path, worker=False) as lab:
        await tell(lab, "j-1", "after that")
        await lab.until(lambda: "after that" in lab.resources("j-1"))


@pytest.mark.parametrize("when", ["before", "after"])
@in_loop
async def test_who_starts_over_while_the_bus_is_away_goes_on_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    async def away(*_: object) -> None:
        raise BusUnavailable("nobody is there")

    async with laboratory(tmp_path, worker=False) as lab:
        with monkeypatch.context() as patch:
            if when == "before":
                patch.setattr(Bus, "topic", away)
            else:
                patch.setattr(lab.service.listener, "_hear_statuses", away)
            with pytest.raises(BusUnavailable):
                await lab.service.rebuild()
        await tell(lab, "j-1", "a")
        await lab.until(lambda: "a" in lab.resources("j-1"))


@in_loop
async def test_two_who_start_over_at_a_time_do_so_one_after_the_other(tmp_path: Path) -> None:
    async with laboratory(tmp_path, worker=False) as lab:
        before = len(asyncio.all_tasks())
        await asyncio.gather(lab.service.rebuild(), lab.service.rebuild())
        assert len(asyncio.all_tasks()) == before


@in_loop
async def test_what_nobody_foresaw_is_tried_again_and_makes_it_unwell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = asyncio.Event()

    async def broken(*_: object) -> None:
        failed.set()
        raise OverflowError("a bug")

    async with laboratory(tmp_path, worker=False) as lab:
        with monkeypatch.context() as patch:
            patch.setattr(Ledger, "fold_logs", broken)
            await tell(lab, "j-1", "a")
            await failed.wait()
            await lab.until(lambda: lab.service.listener.failure is not None)
            assert (await lab.service.health()).parts["listener"].status == "down"
        await lab.until(lambda: "a" in lab.resources("j-1"))
        await lab.until(lambda: lab.service.listener.failure is None)
