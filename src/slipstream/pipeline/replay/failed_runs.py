"""Runs of slips that failed for good at a step, as Spark finds them, with what their dead letters have kept."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import msgspec

from slipstream.pipeline.replay.composing import write_parts
from slipstream.pipeline.tables import TABLES
from slipstream.slip.advance import CANCELLED
from slipstream.slip.topics import DEAD_LETTERS, PROGRESS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from slipstream.pipeline.replay.asked import SlipsAsked
    from slipstream.pipeline.replay.folder import Composition, Replay
    from slipstream.pipeline.replay.history import History

SAMPLE_ROWS = 5
SHOWN = ("ended_at", "correlation_id", "run", "type", "error_code", "error_message")
ORDER = ("ended_at", "correlation_id")


class SeenRuns(msgspec.Struct, frozen=True, kw_only=True):
    """What people are shown before they are asked."""

    count: int
    branches: int
    """Of other slips, which do them again when they are run again themselves."""
    cancelled: int
    """Somebody has ended them, and meant it."""
    run_again: int
    """A later run of them is known."""
    sample: list[dict[str, Any]]


class Between(msgspec.Struct, frozen=True):
    """When they ended."""

    since: dt.datetime | None = None
    until: dt.datetime | None = None


class FailedRuns:
    def __init__(self, history: History, asked: SlipsAsked, between: Between, slip_topic: str) -> None:
        self._history = history
        self._asked = asked
        self._topic = dead_letter_topic(slip_topic)
        self._failed = _failed(history.rows(TABLES["slip_runs"]), asked, between)
        chosen = self._failed.where("NOT is_branch AND NOT is_cancelled AND NOT is_run_again").orderBy(*ORDER)
        self.rows = chosen.limit(asked.limit) if asked.limit else chosen

    def look(self) -> SeenRuns:
        from pyspark.sql import functions as f  # noqa: PLC0415 - an extra, and it takes a second

        def count(condition: str) -> Column:
            return f.count(f.when(f.expr(condition), 1))

        (counted,) = (
            self._failed.agg(
                count("is_branch").alias("branches"),
                count("NOT is_branch AND is_cancelled").alias("cancelled"),
                count("NOT is_branch AND NOT is_cancelled AND is_run_again").alias("run_again"),
            )
            .toArrow()
            .to_pylist()
        )
        sample = self.rows.select(*SHOWN).limit(SAMPLE_ROWS).toArrow().to_pylist()
        return SeenRuns(count=self.rows.count(), sample=sample, **counted)

    def compose(self, seen: SeenRuns, place: Composition) -> Replay:
        parts = write_parts(self._with_letters().orderBy(*ORDER).select("correlation_id", "run", "letter"), place.path)
        return place.plan(parts, self._history.versions, seen.branches + seen.cancelled + seen.run_again)

    def _with_letters(self) -> DataFrame:
        """A store forgets a message when it was over for long; its dead letter says what it was when it failed."""
        from pyspark.sql import functions as f  # noqa: PLC0415

        messages = TABLES["messages"]
        if not self._history.has(messages):
            return self.rows.withColumn("letter", f.lit(None).cast("binary"))
        correlation_id = f.get_json_object(f.col("value").cast("string"), "$.envelope.correlationId")
        letters = (
            self._history.rows(messages)
            .where(f.col("topic") == self._topic)
            .groupBy(correlation_id.alias("correlation_id"))
            .agg(f.max_by("value", "offset").alias("letter"))
        )
        return self.rows.join(letters, "correlation_id", "left")


def dead_letter_topic(slip_topic: str) -> str:
    """Beside the topic in which slips tell what happens to them, behind the same prefix."""
    prefix = slip_topic.removesuffix(PROGRESS) if slip_topic.endswith(PROGRESS) else ""
    return prefix + DEAD_LETTERS


def _failed(runs: DataFrame, asked: SlipsAsked, between: Between) -> DataFrame:
    """Of every run that failed there: whether it is not to be run again, and why."""
    from pyspark.sql import Window  # noqa: PLC0415
    from pyspark.sql import functions as f  # noqa: PLC0415

    newest = f.max("run").over(Window.partitionBy("correlation_id"))
    failed = runs.withColumn("is_run_again", f.col("run") < newest).where(
        (f.col("state") == "dead-lettered") & (f.col("failed_step") == asked.failed_at)
    )
    if asked.event_type:
        failed = failed.where(f.col("type") == asked.event_type)
    if between.since is not None:
        failed = failed.where(f.col("ended_at") >= f.lit(between.since))
    if between.until is not None:
        failed = failed.where(f.col("ended_at") < f.lit(between.until))
    return failed.withColumn("is_branch", f.coalesce(f.col("parent"), f.lit("")) != "").withColumn(
        "is_cancelled", f.coalesce(f.col("error_code"), f.lit("")) == CANCELLED
    )
