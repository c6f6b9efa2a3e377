"""Download jobs next to a bare loop: the same small files from the same server, as many at a time, in turns.

The bare loops are the clients of aiohttp and of httpx reading each body, and nothing else. Jobs are what a user runs:
manifests are posted to the service, and it is done when the ledger says that every resource is stored, synced to disk
and counted. Runs in a process of its own and prints one JSON line.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import httpx
import msgspec
import uvloop

from slipstream.jobs.client import JobsClient

CONCURRENCY = 32
RESOURCES = 1_000
"""In a job, which is what a manifest may have."""
JOBS = 10


class Plan(msgspec.Struct, kw_only=True):
    folder: str
    port: int
    """Of the server of files."""
    environment: dict[str, str]
    """Which bus."""
    workers: int = 0
    """Processes besides the service; 0: it does the work itself."""


class Measured(msgspec.Struct, kw_only=True):
    bare_s: float
    """For all resources with aiohttp, the mean of before and after."""
    httpx_s: float
    """The same with httpx, from a tenth of them."""
    jobs_s: float
    memory_mb: list[float]
    """Of the processes that do the work: after a fifth of the resources, and after all."""


async def measure(plan: Plan) -> Measured:
    before = await bare(plan)
    async with running(plan) as (url, pids):
        jobs_s, memory_mb = await jobs(plan, url, pids)
    after = await bare(plan)
    httpx_s = await bare_httpx(plan)
    return Measured(bare_s=(before + after) / 2, httpx_s=httpx_s, jobs_s=jobs_s, memory_mb=memory_mb)


async def bare(plan: Plan) -> float:
    left = iter(range(JOBS * RESOURCES))
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def fetch() -> None:
            for number in left:
                async with session.get(f"http://127.0.0.1:{plan.port}/bare/{number}") as response:
                    await response.read()

        began = time.perf_counter()
        await asyncio.gather(*(fetch() for _ in range(CONCURRENCY)))
        return time.perf_counter() - began


async def bare_httpx(plan: Plan) -> float:
    left = iter(range(JOBS * RESOURCES // 10))
    async with httpx.AsyncClient(limits=httpx.Limits(max_connections=CONCURRENCY)) as client:

        async def fetch() -> None:
            for number in left:
                await client.get(f"http://127.0.0.1:{plan.port}/bare/{number}")

        began = time.perf_counter()
        await asyncio.gather(*(fetch() for _ in range(CONCURRENCY)))
        return 10 * (time.perf_counter() - began)


async def jobs(plan: Plan, url: str, pids: list[int]) -> tuple[float, list[float]]:
    memory_mb: list[float] = []
    async with JobsClient(url) as client:
        began = time.perf_counter()
        submitted = [(await client.submit("bench", _manifest(plan, number))).job_id for number in range(JOBS)]
        while True:
            done = sum([(await client.job(job_id, resources=False)).resources_completed for job_id in submitted])
            if not memory_mb and done >= JOBS * RESOURCES / 5:
                memory_mb.append(_memory_mb(pids))
            if done == JOBS * RESOURCES:
                seconds = time.perf_counter() - began
                return seconds, [*memory_mb, _memory_mb(pids)]
            await asyncio.sleep(0.05)


def _manifest(plan: Plan, job: int) -> bytes:
    resources = [
        {"id": f"r{number}", "url": f"http://127.0.0.1:{plan.port}/{job}/{number}"} for number in range(RESOURCES)
    ]
    return json.dumps({"manifest_version": "v1", "resources": resources}).encode()


@asynccontextmanager
async def running(plan: Plan) -> AsyncIterator[tuple[str, list[int]]]:
    environment = {
        **os.environ,
        **plan.environment,
        "JOBS_ALLOW_NETWORKS": "127.0.0.0/8",
        "JOBS_STORAGE": f"{plan.folder}/objects",
        "JOBS_LEDGER": f"{plan.folder}/jobs.db",
        "JOBS_CONCURRENCY": str(CONCURRENCY // max(1, plan.workers)),
        "JOBS_HOST_CONCURRENCY": "0",  # all files are of one host, and this is not about politeness
        "JOBS_PORT": "0",
    }
    processes = []
    try:
        service, said = await _start("serve" if plan.workers else "run", environment)
        processes.append(service)
        for _ in range(plan.workers):
            processes.append((await _start("worker", environment))[0])
        found = re.search(r"http://[^/ ]+:\d+", said)
        assert found is not None, said
        yield found[0], [process.pid for process in processes[1:] or processes]
    finally:
        for process in processes:
            process.terminate()
            await process.communicate()


@asynccontextmanager
async def service_and_worker(environment: dict[str, str], options: list[str]) -> AsyncIterator[str]:
    """Gives the address of the service."""
    processes = []
    try:
        service, said = await _start("serve", {**os.environ, **environment})
        processes.append(service)
        processes.append((await _start("worker", {**os.environ, **environment}, *options))[0])
        found = re.search(r"http://[^/ ]+:\d+", said)
        assert found is not None, said
        yield found[0]
    finally:
        for process in reversed(processes):
            process.terminate()
            await process.communicate()


async def _start(command: str, environment: dict[str, str], *options: str) -> tuple[asyncio.subprocess.Process, str]:
    """With what it has said when it is ready."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "slipstream", "jobs", command, "--log-level", "error", *options,
        stderr=asyncio.subprocess.PIPE, env=environment,
    )  # fmt: skip
    assert process.stderr is not None
    said = ""
    while "stop with SIGTERM" not in said:
        line = (await process.stderr.readline()).decode()
        assert line, said
        said += line
    return process, said


def _memory_mb(pids: list[int]) -> float:
    pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids)
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


if __name__ == "__main__":
    measured = uvloop.run(measure(msgspec.json.decode(sys.argv[1], type=Plan)))
    sys.stdout.write(msgspec.json.encode(measured).decode() + "\n")
