"""Download jobs: what their four streams say, message by message, and what that comes to.

A fold takes the messages of a batch, as rows of the tables they went into, and says what they add to its table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from slipstream.pipeline.decode import schema_of
from slipstream.pipeline.delta.fold import Fold, Latest
from slipstream.pipeline.tables.columns import COUNT, DAY, NUMBER, PLACE, TEXT, TIME, columns_of, folded, schema
from slipstream.pipeline.tables.table import Table

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

QUEUED, PARTIAL, COMPLETED, FAILED = (
    "JOB_STATE_QUEUED",
    "JOB_STATE_PARTIAL",
    "JOB_STATE_COMPLETED",
    "JOB_STATE_FAILED",
)


def _silver(name: str, kind: str, what: str, keep_days: int) -> Table:
    return Table(
        name=name,
        layer="silver",
        what=what,
        queries=("jobs",),
        columns=schema(PLACE, columns_of(schema_of(kind))),
        partition_by=("date",),
        time="timestamp",
        keep_days=keep_days,
    )


DOWNLOAD_TASKS = _silver(
    "download_tasks", "DownloadTask", "Every task that was published: one resource to download.", 90
)
JOB_STATUS = _silver("job_status", "JobStatus", "Everything that was said of how far a job is.", 90)
JOB_LOGS = _silver("job_logs", "JobLog", "Every line of the logs of jobs.", 90)
DEAD_LETTERS = _silver("dead_letters", "DeadLetterTask", "Every task that was given up, with the reason.", 365)

TABLE_OF = {
    "DownloadTask": DOWNLOAD_TASKS,
    "JobStatus": JOB_STATUS,
    "JobLog": JOB_LOGS,
    "DeadLetterTask": DEAD_LETTERS,
}


# job_snapshots

_newest = Latest(("updated_at", "offset"))

_JOB_SNAPSHOTS = folded(
    {"job_id": TEXT},
    {
        "job_type": (TEXT, _newest),
        "tenant": (TEXT, _newest),
        "state": (TEXT, _newest),
        "resources_total": (COUNT, _newest),
        "resources_completed": (COUNT, _newest),
        "resources_failed": (COUNT, _newest),
        "manifest_key": (TEXT, _newest),
        "last_error_code": (TEXT, _newest),
        "last_error_message": (TEXT, _newest),
        "log_offset": (COUNT, _newest),
        "first_at": (TIME, "min"),
        "updated_at": (TIME, _newest),
        "ended_at": (TIME, _newest),
        "statuses": (COUNT, "sum"),
        "offset": (COUNT, _newest),
        "_seen": (TIME, "max"),
    },
    seen="_seen",
    begun="first_at",
)

JOB_SNAPSHOTS = Table(
    name="job_snapshots",
    layer="gold",
    what="The latest state of every job.",
    queries=("jobs",),
    columns=_JOB_SNAPSHOTS.columns,
    fold=_JOB_SNAPSHOTS.fold,
    sources=("job_status",),
    time="updated_at",
    keep_days=365,
)


_CLOCKS_APART = "5 minutes"


def job_snapshots(statuses: DataFrame) -> DataFrame:
    """Who says when it was may be wrong. One whose clock is ahead of the broker's would have the last word for as long;
    one who says nothing of it means now."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    stored = f.col("timestamp")
    told = f.when(f.col("timestamp_ms") <= 0, stored).otherwise(
        f.least(f.col("told_at"), stored + f.expr(f"INTERVAL {_CLOCKS_APART}"))
    )
    has_ended = f.col("state").isin(PARTIAL, COMPLETED, FAILED)
    return statuses.select(
        "job_id",
        "job_type",
        "tenant",
        "state",
        "resources_total",
        "resources_completed",
        "resources_failed",
        "manifest_key",
        "last_error_code",
        "last_error_message",
        "log_offset",
        told.alias("first_at"),
        told.alias("updated_at"),
        f.when(has_ended, told).alias("ended_at"),
        f.lit(1).cast("bigint").alias("statuses"),
        "offset",
        stored.alias("_seen"),
    )


# job_throughput and tenant_usage

_WORK = ("tasks", "started", "stored", "failed", "retried", "dead_letters", "bytes")
_ENDS = ("jobs", "jobs_completed", "jobs_partial", "jobs_failed")
_USAGE = (*_ENDS, *(name for name in _WORK if name != "started"))

JOB_THROUGHPUT = Table(
    name="job_throughput",
    layer="gold",
    what="What was done for each tenant in each minute.",
    queries=("jobs",),
    columns=schema({"tenant": TEXT, "minute": TIME}, dict.fromkeys(_WORK, COUNT)),
    fold=Fold(("tenant", "minute"), dict.fromkeys(_WORK, "sum"), begun="minute"),
    sources=("download_tasks", "job_logs", "dead_letters"),
    time="minute",
    keep_days=365,
)

TENANT_USAGE = Table(
    name="tenant_usage",
    layer="gold",
    what="What each tenant has used on each day.",
    queries=("jobs",),
    columns=schema({"tenant": TEXT, "day": DAY}, dict.fromkeys(_USAGE, COUNT)),
    fold=Fold(("tenant", "day"), dict.fromkeys(_USAGE, "sum"), begun="day"),
    sources=("job_status", "download_tasks", "job_logs", "dead_letters"),
    time="day",
)


def job_throughput(tasks: DataFrame | None, logs: DataFrame | None, dead: DataFrame | None) -> DataFrame:
    """By the minute in which a message was stored: nobody can set that clock but the broker. None is for no rows."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    minute = f.date_trunc("minute", "timestamp").alias("minute")
    return _counted(
        ("minute", minute),
        _WORK,
        [
            (tasks, {"tasks": f.lit(1)}),
            (_telling(logs), {**_steps(), "started": _is(f.col("step") == "started")}),
            (dead, {"dead_letters": f.lit(1)}),
        ],
    )


def tenant_usage(
    statuses: DataFrame | None, tasks: DataFrame | None, logs: DataFrame | None, dead: DataFrame | None
) -> DataFrame:
    from pyspark.sql import functions as f  # noqa: PLC0415

    ends = {"jobs": QUEUED, "jobs_completed": COMPLETED, "jobs_partial": PARTIAL, "jobs_failed": FAILED}
    counting = None if statuses is None else statuses.where(f.col("state").isin(*ends.values()))
    telling = _telling(logs)
    return _counted(
        ("day", f.to_date("timestamp").alias("day")),
        _USAGE,
        [
            (counting, {name: _is(f.col("state") == state) for name, state in ends.items()}),
            (tasks, {"tasks": f.lit(1)}),
            (None if telling is None else telling.where("step <> 'started'"), _steps()),
            (dead, {"dead_letters": f.lit(1)}),
        ],
    )


def _telling(logs: DataFrame | None) -> DataFrame | None:
    """Those that say what became of a task."""
    return None if logs is None else logs.where("step IN ('started', 'stored', 'failed', 'retry')")


def _steps() -> dict[str, Column]:
    from pyspark.sql import functions as f  # noqa: PLC0415

    step = f.col("step")
    return {
        "stored": _is(step == "stored"),
        "failed": _is(step == "failed"),
        "retried": _is(step == "retry"),
        "bytes": f.when(step == "stored", f.coalesce("bytes", f.lit(0))).otherwise(0),
    }


def _is(condition: Column) -> Column:
    from pyspark.sql import functions as f  # noqa: PLC0415

    return f.when(condition, 1).otherwise(0)


def _counted(
    period: tuple[str, Column], names: tuple[str, ...], parts: list[tuple[DataFrame | None, dict[str, Column]]]
) -> DataFrame:
    """What each part counts, side by side; what it does not is 0."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    name, when = period
    frames = [
        rows.select(
            f.coalesce("tenant", f.lit("")).alias("tenant"),
            when,
            *(counts.get(count, f.lit(0)).cast("bigint").alias(count) for count in names),
        )
        for rows, counts in parts
        if rows is not None
    ]
    found = frames[0]
    for frame in frames[1:]:
        found = found.unionByName(frame)
    return found.select("tenant", name, *names)


# dead_letter_causes

_example = Latest(("last_at", "example_offset"))

_DEAD_LETTER_CAUSES = folded(
    {"failure_code": TEXT, "host": TEXT, "tenant": TEXT},
    {
        "count": (COUNT, "sum"),
        "first_at": (TIME, "min"),
        "last_at": (TIME, _example),
        "example_job_id": (TEXT, _example),
        "example_resource_id": (TEXT, _example),
        "example_url": (TEXT, _example),
        "example_message": (TEXT, _example),
        "example_topic": (TEXT, _example),
        "example_partition": (NUMBER, _example),
        "example_offset": (COUNT, _example),
    },
    begun="first_at",
)

DEAD_LETTER_CAUSES = Table(
    name="dead_letter_causes",
    layer="gold",
    what="Why tasks were given up: by code, host and tenant, with an example.",
    queries=("jobs",),
    columns=_DEAD_LETTER_CAUSES.columns,
    fold=_DEAD_LETTER_CAUSES.fold,
    sources=("dead_letters",),
    time="last_at",
)


def dead_letter_causes(dead: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f  # noqa: PLC0415

    return dead.select(
        "failure_code",
        "host",
        "tenant",
        f.lit(1).cast("bigint").alias("count"),
        f.col("timestamp").alias("first_at"),
        f.col("timestamp").alias("last_at"),
        f.col("job_id").alias("example_job_id"),
        f.col("resource_id").alias("example_resource_id"),
        f.col("url").alias("example_url"),
        f.col("failure_message").alias("example_message"),
        f.col("topic").alias("example_topic"),
        f.col("partition").alias("example_partition"),
        f.col("offset").alias("example_offset"),
    )
