"""`make bench`: measure, print the table, and write it to bench/results/.

Every number is a ratio to the echo baseline of the same round, because machines differ and are shared; the median of
the rounds counts. `--quick` leaves out what needs five million messages, `--update-readme` puts the table into README.
Each row says whether it shows a burst or a sustained rate, and every load obeys the broker's 429.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.parts import broker, bus, jobs, pipeline, slips, spark
from bench.parts.run import Row, Run
from bench.report import ROOT, report

PARTS: dict[str, Callable[[Run], list[Row]]] = {
    "speed": broker.measure_speed,
    "batches": broker.measure_batches,
    "sustained": broker.measure_sustained,
    "bus": bus.measure_bus,
    "failover": bus.measure_failover,
    "slips": slips.measure_slips,
    "jobs": jobs.measure_jobs,
    "pipeline": pipeline.measure_pipeline,
    "spark": spark.measure_spark,
    "flatness": broker.measure_flatness,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="leave out the five million messages")
    parser.add_argument("--only", choices=[*PARTS], help="measure one part; the README stays as it is")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--data", type=Path, help="where the data directories go: the disk that is measured")
    parser.add_argument("--update-readme", action="store_true")
    arguments = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="slipstream-bench-", dir=arguments.data or ROOT))
    try:
        sync_ms = measure_sync_ms(scratch)
        run = Run(scratch, arguments.rounds, arguments.seconds, arguments.quick, sync_ms)
        parts = [PARTS[arguments.only]] if arguments.only else PARTS.values()
        rows = [row for measure in parts for row in measure(run)]
    finally:
        shutil.rmtree(scratch)
    report(rows, sync_ms, update_readme=arguments.update_readme and not arguments.only)


def measure_sync_ms(scratch: Path) -> float:
    """The median of one fdatasync behind a write the size of a usual commit."""
    fd = os.open(scratch / "sync", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    times = []
    for _ in range(500):
        os.write(fd, b"x" * 8192)
        started = time.perf_counter()
        os.fdatasync(fd)
        times.append(time.perf_counter() - started)
    os.close(fd)
    return statistics.median(times) * 1000


if __name__ == "__main__":
    main()
