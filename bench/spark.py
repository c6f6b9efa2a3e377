"""Downloads on Spark next to the ordinary worker: the same files, service, bus and downloads at a time, in turns.

Each engine is one worker beside the service, on a bus that is a server. Both have done a job before the clock starts:
Spark takes seconds to start its processes, once. Runs in a process of its own and prints one JSON line.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import uvloop

from bench.jobs import CONCURRENCY, RESOURCES, service_and_worker
from bench.servers import files, slipstream
from slipstream.jobs.client import JobsClient

JOBS = 10
SLOTS = 2
ENGINES: dict[str, list[str]] = {"asyncio": [], "spark": ["--engine", "spark", "--master", f"local[{SLOTS}]"]}


class Plan(msgspec.Struct, kw_only=True):
    folder: str
    port: int
    """Of the server of files."""
    url: str
    """Of the bus."""
    engine: str


class Measured(msgspec.Struct, kw_only=True):
    asyncio_s: float
    spark_s: float


def measure_downloads(scratch: Path, rounds: int) -> list[Measured]:
    return [_round(scratch / f"downloads-{number}", number) for number in range(rounds)]


def _round(folder: Path, number: int) -> Measured:
    """Each engine is first as often as the other: a machine that is shared gets faster and slower."""
    seconds = {}
    for engine in sorted(ENGINES, reverse=bool(number % 2)):
        place = folder / engine
        with files() as server, slipstream(place / "data") as bus:
            plan = Plan(folder=str(place), port=server.port, url=f"http://127.0.0.1:{bus.port}", engine=engine)
            command = [sys.executable, "-m", "bench.spark", msgspec.json.encode(plan).decode()]
            output = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=600).stdout
            seconds[engine] = msgspec.json.decode(output, type=float)
        shutil.rmtree(place)
    return Measured(asyncio_s=seconds["asyncio"], spark_s=seconds["spark"])


async def measure(plan: Plan) -> float:
    environment = {
        "MESSAGE_BUS_DRIVER": "http",
        "SLIPSTREAM_URL": plan.url,
        "JOBS_ALLOW_NETWORKS": "127.0.0.0/8",
        "JOBS_STORAGE": f"{plan.folder}/objects",
        "JOBS_LEDGER": f"{plan.folder}/jobs.db",
        "JOBS_SPARK_LOG": f"{plan.folder}/spark.log",
        "JOBS_CONCURRENCY": str(CONCURRENCY),
        "JOBS_PORT": "0",
    }
    async with service_and_worker(environment, ENGINES[plan.engine]) as url, JobsClient(url) as client:
        await _done(client, [await _submit(client, plan, 0)])
        began = time.perf_counter()
        await _done(client, [await _submit(client, plan, number) for number in range(1, 1 + JOBS)])
        return time.perf_counter() - began


async def _submit(client: JobsClient, plan: Plan, job: int) -> str:
    resources = [
        {"id": f"r{number}", "url": f"http://127.0.0.1:{plan.port}/{job}/{number}"} for number in range(RESOURCES)
    ]
    data = json.dumps({"manifest_version": "v1", "resources": resources}).encode()
    return (await client.submit("bench", data)).job_id


async def _done(client: JobsClient, jobs: list[str]) -> None:
    while sum([(await client.job(each, resources=False)).resources_completed for each in jobs]) < len(jobs) * RESOURCES:
        await asyncio.sleep(0.05)


if __name__ == "__main__":
    seconds = uvloop.run(measure(msgspec.json.decode(sys.argv[1], type=Plan)))
    sys.stdout.write(f"{seconds}\n")
