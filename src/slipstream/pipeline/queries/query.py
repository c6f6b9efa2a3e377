"""The three queries."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from slipstream.jobs.streams import streams
from slipstream.pipeline.errors import InvalidPipeline
from slipstream.pipeline.queries.batch import Batch, read_files
from slipstream.pipeline.tables import TABLES, QueryName, Table
from slipstream.pipeline.tables.jobs import (
    DEAD_LETTER_CAUSES,
    DEAD_LETTERS,
    DOWNLOAD_TASKS,
    JOB_LOGS,
    JOB_SNAPSHOTS,
    JOB_STATUS,
    JOB_THROUGHPUT,
    TENANT_USAGE,
    dead_letter_causes,
    job_snapshots,
    job_throughput,
    tenant_usage,
)
from slipstream.pipeline.tables.lineage import RUN_LINEAGE, envelope_lineage, slip_lineage
from slipstream.pipeline.tables.messages import MESSAGES, QUARANTINE
from slipstream.pipeline.tables.slips import (
    ENDED,
    SLIP_EVENTS,
    SLIP_RUNS,
    SLIP_STEPS,
    STEP_METRICS,
    slip_runs,
    slip_steps,
    step_metrics,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from slipstream.pipeline.settings import PipelineSettings


MINUTE_S = 60
MINUTES_NAMED = 1_000
"""More than that are not named in a plan: counting some for nothing is cheaper."""


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """One pass over some topics, and all the tables that come of it."""

    name: QueryName
    kinds: Callable[[PipelineSettings], Mapping[str, str]]
    """Topic → what its messages are, for those that are decoded."""
    pattern: Callable[[PipelineSettings], str]
    """The topics that are read."""
    appended: tuple[Table, ...]
    derive: Callable[[Batch], None]
    """What the rows of a batch mean for the other tables."""
    share: dict[str, str]
    """Tables that other queries write too → which rows are this one's."""

    @property
    def tables(self) -> list[Table]:
        return [table for table in TABLES.values() if self.name in table.queries]

    @property
    def folded(self) -> list[Table]:
        """Those that batches are folded into, and that can be made of the others again."""
        return [table for table in self.tables if table.fold is not None]


# messages


def _derive_of_messages(batch: Batch) -> None:
    if batch.has(MESSAGES, with_any="envelope"):
        batch.fold(RUN_LINEAGE, envelope_lineage(batch.frame(MESSAGES)))


MESSAGES_QUERY = Query(
    name="messages",
    kinds=lambda _: {},
    pattern=lambda settings: settings.topics,
    appended=(MESSAGES,),
    derive=_derive_of_messages,
    share={"run_lineage": "origin = 'envelope'"},
)


# jobs


def _kinds_of_jobs(settings: PipelineSettings) -> Mapping[str, str]:
    found = streams(settings.namespace)
    return {
        found.tasks.topic: "DownloadTask",
        found.status.topic: "JobStatus",
        found.logs.topic: "JobLog",
        found.dlq.topic: "DeadLetterTask",
    }


def _derive_of_jobs(batch: Batch) -> None:
    found = [batch.frame(table) if batch.has(table) else None for table in _JOB_SOURCES]
    statuses, tasks, logs, dead = found
    works = []
    if statuses is not None:
        works.append(lambda: batch.fold(JOB_SNAPSHOTS, job_snapshots(statuses)))
    if any(frame is not None for frame in (tasks, logs, dead)):
        works.append(lambda: batch.fold(JOB_THROUGHPUT, job_throughput(tasks, logs, dead)))
    if any(frame is not None for frame in found):
        works.append(lambda: batch.fold(TENANT_USAGE, tenant_usage(statuses, tasks, logs, dead)))
    if dead is not None:
        works.append(lambda: batch.fold(DEAD_LETTER_CAUSES, dead_letter_causes(dead)))
    batch.together(works)


_JOB_SOURCES = (JOB_STATUS, DOWNLOAD_TASKS, JOB_LOGS, DEAD_LETTERS)


JOBS_QUERY = Query(
    name="jobs",
    kinds=_kinds_of_jobs,
    pattern=lambda settings: _one_of(_kinds_of_jobs(settings)),
    appended=(DOWNLOAD_TASKS, JOB_STATUS, JOB_LOGS, DEAD_LETTERS, QUARANTINE),
    derive=_derive_of_jobs,
    share={"quarantine": "kind <> 'Progress'"},
)


# slips


def _derive_of_slips(batch: Batch) -> None:
    if not batch.has(SLIP_EVENTS):
        return
    events = batch.frame(SLIP_EVENTS)
    batch.together(
        [
            lambda: _follow_steps(batch, events),
            lambda: batch.fold(SLIP_RUNS, slip_runs(events)),
            lambda: batch.fold(RUN_LINEAGE, slip_lineage(events)),
        ]
    )


def _follow_steps(batch: Batch, events: DataFrame) -> None:
    steps = batch.fold(SLIP_STEPS, slip_steps(events))
    if not batch.is_done(STEP_METRICS):
        if steps is None:
            assert SLIP_STEPS.fold is not None
            steps = SLIP_STEPS.fold.collapse(slip_steps(events)).toArrow()
        _count_minutes(batch, steps)


def _count_minutes(batch: Batch, steps: pa.Table) -> None:
    """Of every minute in which an attempt of the batch has ended, all that have ended in it, whenever they came."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute as pc  # noqa: PLC0415
    from pyspark.sql import functions as f  # noqa: PLC0415

    ended = steps.filter(pc.is_in(steps.column("state"), pa.array(ENDED))).column("ended_at")
    minutes = sorted(minute.timestamp() for minute in pc.unique(pc.floor_temporal(ended, unit="minute")).to_pylist())
    if not minutes:
        return

    def may_have(file: Mapping[str, Any]) -> bool:
        least, greatest = file.get("min.ended_at"), file.get("max.ended_at")
        if least is None or greatest is None:
            return True
        # The first of the minutes that does not end before the file begins.
        at = bisect_right(minutes, least.timestamp() - MINUTE_S)
        return at < len(minutes) and minutes[at] <= greatest.timestamp()

    stored = read_files(batch.spark, SLIP_STEPS, batch.folder.files(SLIP_STEPS, may_have))
    if len(minutes) <= MINUTES_NAMED:
        minute_us = f.unix_micros(f.date_trunc("minute", "ended_at"))
        stored = stored.where(minute_us.isin([int(each) * 1_000_000 for each in minutes]))
    batch.put(STEP_METRICS, step_metrics(stored))


SLIPS_QUERY = Query(
    name="slips",
    kinds=lambda settings: {settings.slip_topic: "Progress"},
    pattern=lambda settings: re.escape(settings.slip_topic),
    appended=(SLIP_EVENTS, QUARANTINE),
    derive=_derive_of_slips,
    share={"quarantine": "kind = 'Progress'", "run_lineage": "origin = 'slip'"},
)


QUERIES: dict[QueryName, Query] = {query.name: query for query in (MESSAGES_QUERY, JOBS_QUERY, SLIPS_QUERY)}


def queries_of(names: Iterable[str]) -> list[Query]:
    """Those that make these tables; all for none. Raises InvalidPipeline."""
    wanted: set[str] = set()
    for name in names:
        if name not in TABLES:
            raise InvalidPipeline(f"there is no table {name!r}; there are {', '.join(TABLES)}")
        wanted |= set(TABLES[name].queries)
    return [query for query in QUERIES.values() if not wanted or query.name in wanted]


def _one_of(topics: Iterable[str]) -> str:
    return "|".join(re.escape(topic) for topic in sorted(topics))
