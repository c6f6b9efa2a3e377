"""Which step of a run came from which: of slips by their plans, of other messages by their envelopes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slipstream.pipeline.delta.fold import Latest
from slipstream.pipeline.tables.columns import COUNT, NUMBER, TEXT, TIME, folded
from slipstream.pipeline.tables.slips import PLANS, slip_steps
from slipstream.pipeline.tables.table import Table

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_state = Latest(("_attempt", "_order", "_place"))
_newest = Latest(("_time", "_offset"))

_RUN_LINEAGE = folded(
    {"origin": TEXT, "run_id": TEXT, "step_id": TEXT},
    {
        "parent_step_id": (TEXT, "max"),
        "parent_run_id": (TEXT, "max"),
        "position": (NUMBER, "max"),
        "first_at": (TIME, "min"),
        "last_at": (TIME, "max"),
        "attempts": (NUMBER, "max"),
        "state": (TEXT, _state),
        "topic": (TEXT, _newest),
        "messages": (COUNT, "sum"),
        "_attempt": (NUMBER, _state),
        "_order": (COUNT, _state),
        "_place": (COUNT, _state),
        "_time": (TIME, _newest),
        "_offset": (COUNT, _newest),
        "_seen": (TIME, "max"),
    },
    seen="_seen",
    begun="last_at",
)

RUN_LINEAGE = Table(
    name="run_lineage",
    layer="gold",
    what="The steps of every run as a tree, with their times.",
    queries=("messages", "slips"),
    columns=_RUN_LINEAGE.columns,
    fold=_RUN_LINEAGE.fold,
    sources=("messages", "slip_events"),
    time="last_at",
    keep_days=90,
)


def slip_lineage(events: DataFrame) -> DataFrame:
    """A plan says what comes after what; what is told of attempts says when it was."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    run_id = f.concat("correlation_id", f.when(f.col("run") > 0, f.concat(f.lit("#"), "run")).otherwise(""))
    planned = (
        events.where(f.col("kind").isin(*PLANS))
        .withColumn("_steps", f.filter("steps", lambda step: step != "router"))
        .select(
            run_id.alias("run_id"),
            "parent",
            "_steps",
            f.posexplode("_steps").alias("position", "step_id"),
            f.col("at").alias("last_at"),
            f.col("timestamp").alias("_seen"),
        )
    )
    before = f.when(f.col("position") > 0, f.get("_steps", f.col("position") - 1)).otherwise("")
    plans = planned.select(
        "run_id",
        "step_id",
        before.alias("parent_step_id"),
        f.col("parent").alias("parent_run_id"),
        "position",
        "last_at",
        "_seen",
    )
    tried = slip_steps(events).select(
        run_id.alias("run_id"),
        f.col("step").alias("step_id"),
        f.lit("").alias("parent_step_id"),
        f.lit("").alias("parent_run_id"),
        f.col("last_at").alias("first_at"),
        "last_at",
        (f.col("attempt") + 1).alias("attempts"),
        "state",
        f.col("attempt").alias("_attempt"),
        "_order",
        "_place",
        "_seen",
    )
    return _shaped(plans.unionByName(tried, allowMissingColumns=True).withColumn("origin", f.lit("slip")))


def envelope_lineage(messages: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f  # noqa: PLC0415

    envelope = f.col("envelope")
    of_run = messages.where((envelope["run_id"] != "") & (envelope["step_id"] != ""))
    return _shaped(
        of_run.select(
            f.lit("envelope").alias("origin"),
            envelope["run_id"].alias("run_id"),
            envelope["step_id"].alias("step_id"),
            f.coalesce(envelope["parent_step_id"], f.lit("")).alias("parent_step_id"),
            f.lit("").alias("parent_run_id"),
            f.col("timestamp").alias("first_at"),
            f.col("timestamp").alias("last_at"),
            "topic",
            f.lit(1).cast("bigint").alias("messages"),
            f.col("timestamp").alias("_time"),
            f.col("offset").alias("_offset"),
            f.col("timestamp").alias("_seen"),
        )
    )


def _shaped(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f  # noqa: PLC0415
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415

    there = set(rows.columns)

    def column(name: str, kind: object) -> Column:
        return (f.col(name) if name in there else f.lit(None)).cast(kind).alias(name)  # type: ignore[arg-type]

    return rows.select(*(column(field.name, field.dataType) for field in from_arrow_schema(RUN_LINEAGE.columns)))
