"""Workers, and whole services, that are killed at random: every object is there once, with its checksum, and counts."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import random
import re
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import IO

import pytest

from slipstream.jobs.client import JobsClient, ServiceUnreachable
from tests.bus.sites import make_site
from tests.bus.sites.site import free_port
from tests.chance import chance
from tests.client.loop import in_loop_for
from tests.forked import Forked
from tests.jobs.hostile_server import HostileServer, body, hostile_server
from tests.jobs.lab import laboratory, manifest

ROOT = Path(__file__).parent.parent.parent
LONG = (pytest.mark.long, pytest.mark.timeout(900))
JOBS = 2
MISSING_EVERY = 20

ENVIRONMENT = {
    "JOBS_ALLOW_NETWORKS": "127.0.0.0/8",
    "JOBS_ACK_DEADLINE_MS": "1000",
    "JOBS_RETRY_BASE_MS": "20",
    "JOBS_MAX_DELIVERIES": "1000",
    "JOBS_HOST_CONCURRENCY": "32",
    # Slow enough that there is always something under way when one is killed, and another has begun.
    "JOBS_HOST_RATE_PER_S": "150",
}


class Crew:
    """Processes that are killed, and replaced."""

    def __init__(self, *command: str, environment: dict[str, str]) -> None:
        self._command = command
        self._environment = {**os.environ, **ENVIRONMENT, **environment}
        self._chance = chance()
        self._started: list[Forked] = []
        self._ready: list[Forked] = []

    async def start(self) -> str:
        """Returns what it says when it is ready."""
        process = Forked(
            [sys.executable, "-m", "slipstream", "jobs", *self._command, "--log-level", "error"],
            stderr=subprocess.PIPE,
            cwd=ROOT,
            env=self._environment,
        )
        self._started.append(process)
        assert process.stderr is not None
        said = await asyncio.to_thread(process.stderr.readline)
        assert "stop with SIGTERM" in said, said
        threading.Thread(target=_drain, args=(process.stderr,), daemon=True).start()
        self._ready.append(process)
        return said

    async def kill_one(self) -> None:
        """Without a word, as soon as there is one that is ready."""
        while not self._ready:
            await asyncio.sleep(0.01)
        await self._kill(self._ready.pop(self._chance.randrange(len(self._ready))))

    async def close(self) -> None:
        for process in self._started:
            await self._kill(process)

    async def _kill(self, process: Forked) -> None:
        if process.returncode is None:
            process.kill()
            await asyncio.to_thread(process.wait)


def _drain(stream: IO[str]) -> None:
    """Read what a process logs: it would stop at a pipe that is full."""
    with stream:
        stream.read()


@contextlib.asynccontextmanager
async def crew(*command: str, environment: dict[str, str]) -> AsyncIterator[Crew]:
    made = Crew(*command, environment=environment)
    try:
        yield made
    finally:
        await made.close()


def _urls(server: HostileServer, job: int, resources: int) -> dict[str, str]:
    """Every twentieth is not there."""
    return {
        f"r{number}": server.url(f"/status/404/{job}-{number}")
        if number % MISSING_EVERY == 0
        else server.url(f"/ok/{number + 1}/{job}")
        for number in range(resources)
    }


def _check_objects(folder: Path, resources: int) -> None:
    files = [path for path in (folder / "resources").rglob("*") if path.is_file()]
    assert len(files) == JOBS * (resources - resources // MISSING_EVERY)
    for path in files:
        size = int(path.name.removeprefix("r")) + 1
        assert hashlib.sha256(path.read_bytes()).digest() == hashlib.sha256(body(size)).digest(), path


@pytest.mark.parametrize(
    ("driver", "resources"),
    [
        ("nats", 200),
        ("http", 200),
        pytest.param("nats", 1_000, marks=LONG),
        pytest.param("http", 1_000, marks=LONG),
    ],
)
@in_loop_for(850)
async def test_every_object_is_there_once_though_workers_are_killed(
    driver: str, resources: int, tmp_path: Path
) -> None:
    kills = max(3, resources // 100)
    with contextlib.closing(make_site(driver)) as site:
        environment = {**site.environment(), "JOBS_STORAGE": str(tmp_path / "objects")}
        async with (
            hostile_server() as server,
            laboratory(tmp_path, worker=False, bus=site.settings(), ack_deadline_ms=1_000) as lab,
            crew("worker", environment=environment) as workers,
        ):
            jobs = [await lab.submit(_urls(server, number, resources)) for number in range(JOBS)]
            await asyncio.gather(*(workers.start() for _ in range(2)))
            starting: list[asyncio.Task[str]] = []
            while not all((job := lab.service.ledger.job(each)) and job.is_ended for each in jobs):
                asked = len(server.requests)
                await lab.until(
                    lambda asked=asked: (
                        len(server.requests) >= asked + 50  # type: ignore[misc]
                        or all((job := lab.service.ledger.job(each)) and job.is_ended for each in jobs)
                    )
                )
                if len(starting) < kills:
                    await workers.kill_one()
                    # Not waited for: the other would meanwhile do all there is.
                    starting.append(asyncio.create_task(workers.start()))
            assert len(starting) >= 3
            await asyncio.gather(*starting)
            for job_id in jobs:
                job = await lab.ended(job_id)
                missing = resources // MISSING_EVERY
                assert (job.resources_total, job.resources_completed, job.resources_failed) == (
                    resources,
                    resources - missing,
                    missing,
                )
                assert {each.error_code for each in lab.resources(job_id).values()} == {"", "DOWNLOAD_HTTP_STATUS"}
            letters = {(each.task.job_id, each.task.resource_id) for each in await lab.letters()}
            assert len(letters) == JOBS * (resources // MISSING_EVERY)
            _check_objects(tmp_path / "objects", resources)


@pytest.mark.parametrize("resources", [200, pytest.param(1_000, marks=LONG)])
@in_loop_for(850)
async def test_every_object_is_there_once_though_the_whole_process_is_killed(resources: int, tmp_path: Path) -> None:
    """With the embedded broker: ingress, ledger, worker and broker at once, in the middle of whatever they do."""
    port = free_port()
    environment = {
        "SLIPSTREAM_DATA": str(tmp_path / "data"),
        "JOBS_STORAGE": str(tmp_path / "objects"),
        "JOBS_LEDGER": str(tmp_path / "jobs.db"),
        "JOBS_PORT": str(port),
    }
    async with hostile_server() as server, crew("run", environment=environment) as services:
        said = await services.start()
        found = re.search(r"http://\S+:\d+", said)
        assert found is not None
        jobs: list[str] = []
        server.gate.clear()  # nothing is downloaded before both jobs are taken
        for number in range(JOBS):
            jobs.append(await _submit(found[0], server, number, resources, services))
        server.gate.set()
        killed = 0
        while True:
            asked = len(server.requests)
            while len(server.requests) < asked + 100 and not await _ended(found[0], jobs):
                await asyncio.sleep(0.05)
            if await _ended(found[0], jobs):
                break
            await services.kill_one()
            killed += 1
            await services.start()
        assert killed >= 2
        async with JobsClient(found[0]) as client:
            for job_id in jobs:
                job = await client.job(job_id)
                missing = resources // MISSING_EVERY
                assert (job.resources_total, job.resources_completed, job.resources_failed) == (
                    resources,
                    resources - missing,
                    missing,
                )
        _check_objects(tmp_path / "objects", resources)


async def _submit(url: str, server: HostileServer, number: int, resources: int, services: Crew) -> str:
    """Killed while it is being answered, and asked for again with the same key."""
    data = manifest(_urls(server, number, resources))
    async with JobsClient(url) as client:
        asking = asyncio.ensure_future(client.submit("crawl", data, idempotency_key=f"key-{number}"))
        await asyncio.wait({asking}, timeout=random.random() * 0.2)
        await services.kill_one()
        await asyncio.gather(asking, return_exceptions=True)
        await services.start()
        accepted = await client.submit("crawl", data, idempotency_key=f"key-{number}")
        assert accepted.resource_count == resources
        again = await client.submit("crawl", data, idempotency_key=f"key-{number}")
        assert again == accepted
        assert len((await client.jobs()).jobs) == number + 1
        return accepted.job_id


async def _ended(url: str, jobs: list[str]) -> bool:
    async with JobsClient(url) as client:
        try:
            found = [await client.job(job_id, resources=False) for job_id in jobs]
        except ServiceUnreachable:
            return False
    return all(job.is_ended for job in found)
