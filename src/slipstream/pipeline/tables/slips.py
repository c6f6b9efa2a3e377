"""Slips: everything that was told of them, and what that says of their attempts and runs.

What is told may be told again, by whoever takes over from somebody who died, and comes in any order; each fold says
which of several is right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from slipstream.pipeline.decode import decode_progress
from slipstream.pipeline.delta.fold import Fold, Latest
from slipstream.pipeline.tables.columns import (
    COUNT,
    FLAG,
    NUMBER,
    PLACE,
    REAL,
    TEXT,
    TEXTS,
    TIME,
    columns_of,
    folded,
    schema,
)
from slipstream.pipeline.tables.table import Table
from slipstream.slip.advance import CANCELLED, MESSAGE_TIMEOUT

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

SLIP_EVENTS = Table(
    name="slip_events",
    layer="silver",
    what="Everything that was told of slips: a row a transition.",
    queries=("slips",),
    columns=schema(PLACE, columns_of(decode_progress(pa.array([], pa.binary())).columns.schema)),
    partition_by=("date",),
    time="timestamp",
    keep_days=90,
)

_RANK = 1 << 54
"""Above every time in microseconds, until the year 2540: what ranks higher wins, whenever it was."""
_INDEX = 1 << 16
"""Above the number of events in a message."""


def _at() -> Column:
    from pyspark.sql import functions as f  # noqa: PLC0415

    return f.unix_micros("at")


def _place() -> Column:
    """Where an event stands in the log, as a number."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    return f.col("offset") * _INDEX + f.col("index")


# slip_steps

_STATES = {
    "started": ("working", 1),
    "waiting": ("waiting", 2),
    "forked": ("waiting", 2),
    "skipped": ("skipped", 3),
    "finished": ("done", 4),
    "compensated": ("done", 4),
    "retried": ("retried", 4),
    "failed": ("failed", 4),
    "compensation-failed": ("failed", 4),
}
"""What an event makes of an attempt, and which of several counts. Of outcomes the first in the log does: who comes
later repeats it, and what has ended in a minute stays in it. Of those who only begin it is the last."""
ENDED = ("done", "retried", "failed")

_telling = Latest(("_order", "_place"))

_SLIP_STEPS = folded(
    {"correlation_id": TEXT, "run": NUMBER, "step": TEXT, "attempt": NUMBER},
    {
        "type": (TEXT, "max"),
        "state": (TEXT, _telling),
        "undoes": (TEXT, "max"),
        "began_at": (TIME, "min"),
        "ended_at": (TIME, _telling),
        "duration_ms": (REAL, _telling),
        "error_code": (TEXT, _telling),
        "error_message": (TEXT, _telling),
        "error_retryable": (FLAG, _telling),
        "detail": (TEXT, _telling),
        "optional": (FLAG, "max"),
        "taken": (COUNT, "sum"),
        "by": (TEXT, _telling),
        "trace_id": (TEXT, "max"),
        "last_at": (TIME, "max"),
        "_order": (COUNT, _telling),
        "_place": (COUNT, _telling),
        "_seen": (TIME, "max"),
    },
    seen="_seen",
    begun="last_at",
)

SLIP_STEPS = Table(
    name="slip_steps",
    layer="silver",
    what="One row for every attempt at a step of a slip.",
    queries=("slips",),
    columns=_SLIP_STEPS.columns,
    fold=_SLIP_STEPS.fold,
    sources=("slip_events",),
    time="last_at",
    keep_days=90,
)


def slip_steps(events: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f  # noqa: PLC0415

    at = f.col("at")
    is_end = f.col("_rank") >= 3
    began = f.when(f.col("_rank") <= 2, at).when(
        f.col("_rank") == 4, f.timestamp_micros(_at() - f.round(f.col("duration_ms") * 1000).cast("bigint"))
    )
    is_optional = (f.col("kind") == "skipped") & f.col("error_code").isNotNull()
    return _ranked(events).select(
        "correlation_id",
        "run",
        "step",
        "attempt",
        "type",
        "state",
        f.regexp_extract("step", "^undo:([^#]*)", 1).alias("undoes"),
        began.alias("began_at"),
        f.when(is_end, at).alias("ended_at"),
        "duration_ms",
        "error_code",
        "error_message",
        "error_retryable",
        "detail",
        (is_optional & ~f.col("error_code").isin(MESSAGE_TIMEOUT, CANCELLED)).alias("optional"),
        f.when(f.col("kind") == "started", 1).otherwise(0).cast("bigint").alias("taken"),
        "by",
        "trace_id",
        at.alias("last_at"),
        "_order",
        "_place",
        f.col("timestamp").alias("_seen"),
    )


def _ranked(events: DataFrame) -> DataFrame:
    """Those that are of an attempt, with what they make of it and how much that counts."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    states = f.create_map(*(f.lit(text) for kind, (state, _) in _STATES.items() for text in (kind, state)))
    ranks = f.create_map(*(f.lit(value) for kind, (_, rank) in _STATES.items() for value in (kind, rank)))
    is_end = f.col("_rank") >= 3
    return (
        events.where(f.col("kind").isin(*_STATES) & (f.col("step") != ""))
        .withColumn("state", states[f.col("kind")])
        .withColumn("_rank", ranks[f.col("kind")])
        .withColumn("_order", f.col("_rank") * _RANK + f.when(is_end, 0).otherwise(_at()))
        .withColumn("_place", f.when(is_end, -_place()).otherwise(_place()))
    )


# slip_runs

PLANS = ("planned", "rerun")
"""What says which steps there are; of several in a run the first."""
_ENDS = ("completed", "dead-lettered", "dropped")
"""The last of a run is its end: what was refused for want of a route may be routed yet."""
_end = Latest(("_end",))
_plan = Latest(("_plan",))
_last = Latest(("_last", "_last_place"))

_SLIP_RUNS = folded(
    {"correlation_id": TEXT, "run": NUMBER},
    {
        "type": (TEXT, "max"),
        "parent": (TEXT, "max"),
        "branch": (TEXT, "max"),
        "state": (TEXT, _end),
        "steps": (TEXTS, _plan),
        "begun_at": (TIME, "min"),
        "ended_at": (TIME, _end),
        "duration_ms": (REAL, _end),
        "failed_step": (TEXT, _end),
        "error_code": (TEXT, _end),
        "error_message": (TEXT, _end),
        "last_step": (TEXT, _last),
        "last_kind": (TEXT, _last),
        "last_at": (TIME, "max"),
        "events": (COUNT, "sum"),
        "trace_id": (TEXT, "max"),
        "_end": (COUNT, "max"),
        "_plan": (COUNT, "max"),
        "_last": (COUNT, _last),
        "_last_place": (COUNT, _last),
        "_seen": (TIME, "max"),
    },
    seen="_seen",
    begun="begun_at",
)

SLIP_RUNS = Table(
    name="slip_runs",
    layer="silver",
    what="One row for every run of a slip: from its plan to its end.",
    queries=("slips",),
    columns=_SLIP_RUNS.columns,
    fold=_SLIP_RUNS.fold,
    sources=("slip_events",),
    time="last_at",
    keep_days=90,
)


def slip_runs(events: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f  # noqa: PLC0415

    is_end = f.col("kind").isin(*_ENDS)
    is_plan = f.col("kind").isin(*PLANS)
    has_step = f.col("step") != ""

    def of_end(value: Column | str) -> Column:
        return f.when(is_end, f.col(value) if isinstance(value, str) else value)

    return events.select(
        "correlation_id",
        "run",
        "type",
        "parent",
        f.when((f.col("kind") == "planned") & (f.col("parent") != ""), f.col("detail")).otherwise("").alias("branch"),
        f.when(is_end, f.col("kind")).otherwise("under way").alias("state"),
        f.when(is_plan, f.col("steps")).otherwise(f.array().cast("array<string>")).alias("steps"),
        f.col("at").alias("begun_at"),
        of_end("at").alias("ended_at"),
        of_end("duration_ms").alias("duration_ms"),
        f.coalesce(of_end("step"), f.lit("")).alias("failed_step"),
        of_end("error_code").alias("error_code"),
        of_end("error_message").alias("error_message"),
        f.when(has_step, f.col("step")).otherwise("").alias("last_step"),
        f.when(has_step, f.col("kind")).otherwise("").alias("last_kind"),
        f.col("at").alias("last_at"),
        f.lit(1).cast("bigint").alias("events"),
        "trace_id",
        f.when(is_end, _place()).alias("_end"),
        f.when(is_plan, -_place()).alias("_plan"),
        f.when(has_step, _at()).otherwise(f.lit(-1)).alias("_last"),
        f.when(has_step, _place()).otherwise(f.lit(-1)).alias("_last_place"),
        f.col("timestamp").alias("_seen"),
    )


# stuck_slips

STUCK_SLIPS = Table(
    name="stuck_slips",
    layer="gold",
    what="Slips under way of which nothing was told for long, though they wait for nobody.",
    queries=("slips",),
    columns=schema(
        {
            "correlation_id": TEXT,
            "run": NUMBER,
            "type": TEXT,
            "step": TEXT,
            "kind": TEXT,
            "since": TIME,
            "trace_id": TEXT,
        }
    ),
    sources=("slip_runs",),
    time="since",
)


def stuck_slips(runs: DataFrame, before_us: int) -> DataFrame:
    """Return the runs of which nothing was told since then.

    A run is not stuck while it waits for a person or a signal, or for branches that are under way: what stands still
    there has a row of its own."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    under_way = runs.where(f.col("state") == "under way")
    parents = under_way.where(f.col("parent") != "").select(f.col("parent").alias("correlation_id")).distinct()
    silent = under_way.where((f.unix_micros("last_at") < before_us) & (f.col("last_kind") != "waiting"))
    is_forked = f.col("last_kind") == "forked"
    found = silent.where(~is_forked).unionByName(
        silent.where(is_forked).join(parents, "correlation_id", "left_anti").select(*silent.columns)
    )
    return found.select(
        "correlation_id",
        "run",
        "type",
        f.col("last_step").alias("step"),
        f.col("last_kind").alias("kind"),
        f.col("last_at").alias("since"),
        "trace_id",
    )


# step_metrics

STEP_METRICS = Table(
    name="step_metrics",
    layer="gold",
    what="How often each step was tried in each minute, how often it failed, and how long it took.",
    queries=("slips",),
    columns=schema(
        {
            "step": TEXT,
            "minute": TIME,
            "runs": COUNT,
            "attempts": COUNT,
            "errors": COUNT,
            "p50_ms": REAL,
            "p95_ms": REAL,
            "p99_ms": REAL,
        }
    ),
    fold=Fold(
        ("step", "minute"),
        dict.fromkeys(("runs", "attempts", "errors", "p50_ms", "p95_ms", "p99_ms"), "new"),
        begun="minute",
    ),
    sources=("slip_steps",),
    time="minute",
    keep_days=365,
)


def step_metrics(steps: DataFrame) -> DataFrame:
    """Of whole minutes: percentiles of parts cannot be put together."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    ended = steps.where(f.col("state").isin(*ENDED))
    return ended.groupBy("step", f.date_trunc("minute", "ended_at").alias("minute")).agg(
        f.count_distinct("correlation_id", "run").alias("runs"),
        f.count(f.lit(1)).alias("attempts"),
        f.count(f.when(f.col("state") != "done", 1)).alias("errors"),
        f.percentile("duration_ms", 0.5).alias("p50_ms"),
        f.percentile("duration_ms", 0.95).alias("p95_ms"),
        f.percentile("duration_ms", 0.99).alias("p99_ms"),
    )
