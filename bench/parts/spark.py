"""Executors of Spark: a step of slips and downloads, next to what does them without Spark."""

from __future__ import annotations

import statistics

from bench.jobs import RESOURCES
from bench.parts.run import Row, Run, console
from bench.spark import JOBS, SLOTS, measure_downloads
from bench.steps import CORES, MESSAGES, measure_steps


def measure_spark(run: Run) -> list[Row]:
    """Measure steps and downloads on executors of Spark, next to the ordinary worker."""
    scratch, rounds = run.scratch, run.rounds
    console.print("[dim]a step on Spark[/]")
    step_rate = statistics.median(measure_steps(scratch, rounds))
    step = f"a step on Spark that does nothing, {CORES} cores: {MESSAGES:,} messages, durable"
    console.print("[dim]downloads on Spark[/]")
    measured = measure_downloads(scratch, rounds)
    resources = JOBS * RESOURCES
    rate = statistics.median(resources / each.spark_s for each in measured)
    ratio = statistics.median(each.asyncio_s / each.spark_s for each in measured)
    what = f"downloads on Spark, {SLOTS} slots: {resources:,} files of 4 KiB (÷ the ordinary worker)"
    return [
        Row(
            what=step,
            rate=f"{step_rate:,.0f}/s",
            load=f"burst, {MESSAGES:,} messages",
            target="≥ 50,000/s",
            met=step_rate >= 50_000,
        ),
        Row(
            what=what,
            rate=f"{rate:,.0f}/s",
            load=f"burst, {resources:,} files",
            ratio=f"{ratio:.2f}",
            target="≥ 0.70",
            met=ratio >= 0.7,
        ),
    ]
