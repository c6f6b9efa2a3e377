"""Which tables can be sent back, and what of a row makes a message."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from slipstream.jobs.messages import NAME_CHARS_MAX
from slipstream.jobs.streams import streams
from slipstream.pipeline.errors import InvalidPipeline
from slipstream.pipeline.tables import TABLES, Table

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from slipstream.pipeline.replay.history import History

Kind: TypeAlias = Literal["task", "message"]

ORDER = ("timestamp", "topic", "partition", "offset")
"""In which rows are sent: as they were stored. No two are at the same place."""

TARGET = "target"
"""The column that says where a row goes."""

DEAD_LETTERS_OF_BROKER = "dlq."
"""What the names of topics begin with that only the broker itself writes."""


class Sendable(msgspec.Struct, frozen=True, kw_only=True):
    table: Table
    kind: Kind
    stream: str = ""
    """Where its rows go unless somebody says otherwise, without the namespace; empty: where each came from."""
    shown: tuple[str, ...]
    """What people see of a row."""
    chosen: Callable[[DataFrame, History], DataFrame]
    """Of the rows that were selected, those that are sent."""
    columns: Callable[[DataFrame], list[Column]]
    """What of a row is composed, beside its place."""


def sendable(name: str) -> Sendable:
    """Raises InvalidPipeline."""
    if name not in SENDABLE:
        there = "a table" if name in TABLES else "no table"
        raise InvalidPipeline(
            f"{name} is {there} whose rows cannot be sent back: those of {', '.join(SENDABLE)} can. For slips that "
            "failed there is  slipstream pipeline rerun"
        )
    return SENDABLE[name]


def topic_of(to: str, namespace: str) -> str:
    """`jobs.tasks` is the stream of that name, whatever the namespace; any other name is that of a topic."""
    ours = {stream.topic.removeprefix(f"{namespace}."): stream.topic for stream in streams(namespace).all()}
    found = ours.get(to, to)
    if found.startswith(DEAD_LETTERS_OF_BROKER):
        raise InvalidPipeline(f"--to {found}: only the broker writes dead letters; name an ordinary topic")
    return found


# Tasks

_SOUND = (
    f"length(task.job_id) BETWEEN 1 AND {NAME_CHARS_MAX} AND length(task.resource_id) BETWEEN 1 AND {NAME_CHARS_MAX} "
    "AND task.url <> '' AND (task.trace_id = '' OR task.trace_id RLIKE '^([0-9a-f]{16}|[0-9a-f]{32})$')"
)
"""What `check_task` says of a task: a worker would only bury it again."""


def _newest_of_each_resource(letters: DataFrame, history: History) -> DataFrame:
    """As `jobs replay` does: a resource that failed three times is tried once, and one that is stored by now not."""
    from pyspark.sql import Window  # noqa: PLC0415 - an extra, and it takes a second
    from pyspark.sql import functions as f  # noqa: PLC0415

    newest_first = [f.desc(name) for name in ("failed_at_ms", *ORDER)]
    of_resource = Window.partitionBy("job_id", "resource_id").orderBy(*newest_first)
    newest = letters.where(_SOUND).withColumn("_age", f.row_number().over(of_resource)).where("_age = 1").drop("_age")
    logs = TABLES["job_logs"]
    if not history.has(logs):
        return newest
    stored = (
        history.rows(logs)
        .where("step = 'stored'")
        .groupBy(f.col("job_id").alias("_job"), f.col("resource_id").alias("_resource"))
        .agg(f.max("timestamp").alias("_stored_at"))
    )
    is_stored = "job_id = _job AND resource_id = _resource AND _stored_at > timestamp"
    return newest.join(stored, f.expr(is_stored), "left_anti")


def _fresh_task(letters: DataFrame) -> list[Column]:
    """With all its attempts before it."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    attempt = letters.schema["task"].dataType["attempt"].dataType  # type: ignore[index]
    return [f.col("task").withField("attempt", f.lit(0).cast(attempt)).alias("task")]


def _with_task(rows: DataFrame, _: History) -> DataFrame:
    from pyspark.sql import functions as f  # noqa: PLC0415

    names = [name for name in TABLES["download_tasks"].columns.names if name not in {*ORDER, "date"}]
    return rows.withColumn("task", f.struct(*names)).where(_SOUND)


def _task(rows: DataFrame) -> list[Column]:
    from pyspark.sql import functions as f  # noqa: PLC0415

    return [f.col("task")]


# Messages


def _message(rows: DataFrame) -> list[Column]:
    from pyspark.sql import functions as f  # noqa: PLC0415

    return [f.col(name) for name in ("key", "value", "headers", "envelope")]


def own_topic() -> Column:
    """Where a message came from; of a dead letter of the broker, where it was before it died."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    return f.coalesce(f.col("envelope.dlq.original_topic"), f.col("topic"))


SENDABLE: dict[str, Sendable] = {
    one.table.name: one
    for one in (
        Sendable(
            table=TABLES["dead_letters"],
            kind="task",
            stream="jobs.tasks",
            shown=("timestamp", "job_id", "resource_id", "failure_code", "attempts", "url"),
            chosen=_newest_of_each_resource,
            columns=_fresh_task,
        ),
        Sendable(
            table=TABLES["download_tasks"],
            kind="task",
            stream="jobs.tasks",
            shown=("timestamp", "job_id", "resource_id", "attempt", "url"),
            chosen=_with_task,
            columns=_task,
        ),
        Sendable(
            table=TABLES["messages"],
            kind="message",
            shown=("timestamp", "topic", "partition", "offset", "key", "value"),
            chosen=lambda rows, _: rows,
            columns=_message,
        ),
    )
}
