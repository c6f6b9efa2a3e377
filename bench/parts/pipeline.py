"""The pipeline: the connector next to Spark's own reader, and the queries behind it."""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Iterator

from bench.parts.run import Row, Run, console
from bench.pipeline import Measured, Plan, Read
from bench.servers import pipeline_reading, pipeline_seconds, slipstream


def measure_pipeline(run: Run) -> list[Row]:
    """The connector next to Spark's own reader, and what the queries make of messages in a second."""
    scratch = run.scratch
    console.print("[dim]pipeline[/]")
    plan = Plan(folder=str(scratch / "pipeline"), port=0, many=0 if run.quick else 10_000_000)
    with slipstream(scratch / "pipeline-data", "--durability", "off") as server:
        plan.port = server.port
        read = pipeline_reading(plan)
        found = pipeline_seconds(plan)
    for name in ("pipeline", "pipeline-data"):
        shutil.rmtree(scratch / name, ignore_errors=True)
    return list(_pipeline_rows(plan, read, found))


def _pipeline_rows(plan: Plan, read: Read, found: Measured) -> Iterator[Row]:
    def rate(messages: int, seconds: float) -> str:
        return f"{messages / seconds:,.0f}/s"

    ratio = statistics.median(parquet / ours for ours, parquet in zip(read.read_s, read.parquet_s, strict=True))
    what = f"pipeline: {plan.messages:,} messages of 200 B into noop (÷ Spark's Parquet reader, the same rows)"
    read_s = statistics.median(read.read_s)
    load = f"burst, {plan.messages:,} messages"
    yield Row(
        what=what,
        rate=rate(plan.messages, read_s),
        load=load,
        ratio=f"{ratio:.2f}",
        target="≥ 0.70",
        met=ratio >= 0.7,
    )
    for what, seconds, least in (
        ("bronze, from the log to the commit", found.bronze.appended_s, 300_000),
        ("bronze, and starting and ending the query", found.bronze.whole_s, 0),
        ("protobuf silver, from the log to the commit", found.silver.appended_s, 200_000),
        ("protobuf silver, and gold", found.silver.batches_s, 0),
    ):
        row = Row(what=f"pipeline: {what}", rate=rate(plan.messages, seconds), load=load)
        if least:
            row.target, row.met = f"≥ {least:,}/s", plan.messages / seconds >= least
        yield row
    gold_s = sorted(found.gold_s)
    p50, p99 = statistics.median(gold_s), gold_s[-1]
    yield Row(
        what="pipeline: new message to gold row",
        p50=f"{p50:.2f} s",
        p99=f"{p99:.2f} s",
        load="one message after the other",
        target="p50 ≤ 2 s",
        met=p50 <= 2,
    )
    if found.many is not None:
        cost = (found.many.batches_s / plan.many) / (found.bronze.batches_s / plan.messages)
        what = f"pipeline: bronze, cost of a row with {plan.many:,} ÷ with {plan.messages:,}"
        yield Row(
            what=what,
            rate=rate(plan.many, found.many.batches_s),
            load=f"sustained, {plan.many:,} messages",
            ratio=f"{cost:.2f}",
            target="≤ 1.10",
            met=cost <= 1.1,
        )
