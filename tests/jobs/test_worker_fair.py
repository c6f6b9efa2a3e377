"""Hosts that are slow, or have a quota: waiting for them costs a task nothing, and other hosts even less."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.bus.sites.site import Site
from tests.client.loop import in_loop
from tests.jobs.hostile_server import hostile_server
from tests.jobs.lab import laboratory

SMALL: dict[str, Any] = {"concurrency": 8, "max_in_flight": 24, "host_concurrency": 4}
"""A worker with room for eight tasks that wait."""


@in_loop
async def test_every_resource_of_a_host_with_a_quota_is_stored(site: Site, prefix: str, tmp_path: Path) -> None:
    async with (
        hostile_server() as server,
        laboratory(
            tmp_path,
            bus={**site.settings(), "prefix": prefix},
            **SMALL,
            max_attempts=2,
            max_deliveries=2,
            hold_ms=20,
            retry_after_max_ms=50,
        ) as lab,
    ):
        job_id = await lab.submit({f"r{number}": server.url(f"/quota/6/{number}") for number in range(60)})
        job = await lab.ended(job_id)
        assert (job.state, job.resources_completed) == ("completed", 60)
        assert {each.attempts for each in lab.resources(job_id).values()} == {1}
        assert sum(server.paths.values()) > 60, "the host has refused some"


@pytest.mark.parametrize("path", ["/hang/{}", "/redirect?to={}"])
@in_loop
async def test_a_host_that_never_answers_holds_up_no_other(path: str, site: Site, prefix: str, tmp_path: Path) -> None:
    async with (
        hostile_server() as server,
        laboratory(tmp_path, bus={**site.settings(), "prefix": prefix, "drain_timeout_ms": 50}, **SMALL) as lab,
    ):
        silent = [server.url(f"/hang/{number}", "127.0.0.2") for number in range(100)]
        urls = silent if path.startswith("/hang") else [server.url(path.format(url)) for url in silent]
        slow = await lab.submit({f"r{number}": url for number, url in enumerate(urls)})
        quick = await lab.submit({f"r{number}": server.url(f"/ok/{number}", "127.0.0.3") for number in range(10)})
        assert (await lab.ended(quick)).state == "completed"
        job = lab.service.ledger.job(slow)
        assert job is not None
        assert not job.is_ended
        assert 0 < sum(count for at, count in server.paths.items() if at.startswith("/hang")) <= 4


@in_loop
async def test_limits_of_a_host_are_in_the_configuration(tmp_path: Path) -> None:
    config = tmp_path / "jobs.toml"
    config.write_text('[hosts."127.0.0.*"]\nconcurrency = 2\n[hosts."127.0.0.9"]\nconcurrency = 1\n')
    async with (
        hostile_server() as server,
        laboratory(tmp_path, config=str(config), bus={"driver": "memory", "drain_timeout_ms": 50}, **SMALL) as lab,
    ):
        for host in ("127.0.0.8", "127.0.0.9", "localhost"):
            await lab.submit({f"r{number}": server.url(f"/hang/{host}", host) for number in range(6)})
        await lab.until(lambda: sum(server.paths.values()) >= 7)
        assert dict(server.paths) == {"/hang/127.0.0.8": 2, "/hang/127.0.0.9": 1, "/hang/localhost": 4}


@in_loop
async def test_a_worker_that_stops_begins_nothing_and_gives_back_what_waits(tmp_path: Path) -> None:
    async with hostile_server() as server:
        bus = {"driver": "embedded", "data": str(tmp_path / "bus")}
        async with laboratory(tmp_path, bus=bus, concurrency=1, max_in_flight=8) as lab:
            job_id = await lab.submit({f"r{number}": server.url(f"/hang/{number}") for number in range(6)})
            await lab.until(lambda: sum(server.paths.values()) == 1)
            asyncio.get_running_loop().call_later(0.05, server.release.set)
        assert len(server.paths) == 1, "the one under way has ended, and no other has begun"
        async with laboratory(tmp_path, bus=bus, max_attempts=1) as lab:
            assert (await lab.ended(job_id)).resources_failed == 6
