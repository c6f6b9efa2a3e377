"""Download jobs next to a bare loop of the client that they use."""

from __future__ import annotations

import shutil
import statistics

from bench.jobs import JOBS, RESOURCES, Measured, Plan
from bench.parts.run import Row, Run, console
from bench.servers import files, job_seconds, nats


def measure_jobs(run: Run) -> list[Row]:
    """Download jobs next to a bare loop of the client that they use."""
    scratch, rounds = run.scratch, run.rounds
    found: dict[str, list[Measured]] = {"embedded, one process": [], "NATS JetStream, two workers": []}
    for number in range(rounds):
        console.print(f"[dim]jobs, round {number + 1} of {rounds}[/]")
        with files() as server:
            folder = scratch / f"jobs-embedded-{number}"
            environment = {"MESSAGE_BUS_DRIVER": "embedded", "SLIPSTREAM_DATA": str(folder / "data")}
            plan = Plan(folder=str(folder), port=server.port, environment=environment)
            found["embedded, one process"].append(job_seconds(plan))
            folder = scratch / f"jobs-nats-{number}"
            with nats(folder / "nats") as address:
                environment = {"MESSAGE_BUS_DRIVER": "nats", "NATS_URL": address}
                plan = Plan(folder=str(folder), port=server.port, environment=environment, workers=2)
                found["NATS JetStream, two workers"].append(job_seconds(plan))
    # Only now: after ten thousand deletions ext4 took ten times as long to create each of the next files.
    for left in scratch.glob("jobs-*"):
        shutil.rmtree(left, ignore_errors=True)
    return [row for name, measured in found.items() for row in _job_rows(name, measured)]


def _job_rows(name: str, rounds: list[Measured]) -> list[Row]:
    resources = JOBS * RESOURCES
    rate = statistics.median(resources / each.jobs_s for each in rounds)
    ratio = statistics.median(each.bare_s / each.jobs_s for each in rounds)
    to_httpx = statistics.median(each.httpx_s / each.jobs_s for each in rounds)
    grown = statistics.median(each.memory_mb[-1] / each.memory_mb[0] for each in rounds)
    memory_mb = statistics.median(each.memory_mb[-1] for each in rounds)
    what = f"download jobs on {name}: {resources:,} files of 4 KiB"
    load = f"burst, {resources:,} files"
    memory = Row(what=f"{what}: memory (÷ after a fifth)", rate=f"{memory_mb:.0f} MB", load=load, ratio=f"{grown:.2f}")
    if "one process" not in name:
        # A broker in the same process keeps its newest records in memory until they are compacted: it grows to a bound.
        memory.target, memory.met = "≤ 1.20", grown <= 1.2
    return [
        Row(
            what=f"{what} (÷ bare aiohttp loop)",
            rate=f"{rate:,.0f}/s",
            load=load,
            ratio=f"{ratio:.2f}",
            target="≥ 0.50",
            met=ratio >= 0.5,
        ),
        Row(
            what=f"{what} (÷ bare httpx loop)", load=load, ratio=f"{to_httpx:.2f}", target="≥ 0.50", met=to_httpx >= 0.5
        ),
        memory,
    ]
