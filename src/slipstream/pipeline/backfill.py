"""One day once more: its messages are read and decoded again, and take the place of what the tables had of it.

For when a day was decoded by a release that knew less, or came out of quarantine. What cannot be had any more stays.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from slipstream.pipeline.delta import DateFiles, Written
from slipstream.pipeline.errors import PipelineError
from slipstream.pipeline.queries import Query, Renewed
from slipstream.pipeline.stream import Stream, source_options

if TYPE_CHECKING:
    from slipstream.pipeline.run import Pipeline
    from slipstream.pipeline.tables import Table


class Backfilled(msgspec.Struct, frozen=True):
    """What became of a table."""

    table: str
    before: int
    """Rows of the day; of a table that is made of others, 0."""
    rows: int


def backfill(pipeline: Pipeline, queries: Sequence[Query], day: dt.date, *, force: bool = False) -> list[Backfilled]:
    """Brings the tables up to date first, so that no batch is under way. Raises PipelineError where the log has less of
    the day than the tables, unless `force`: then that is what they have."""
    pipeline.run(queries, once=True)
    return [one for query in queries for one in _backfill(pipeline.stream(query), day, force=force)]


def _backfill(stream: Stream, day: dt.date, *, force: bool) -> Iterator[Backfilled]:
    query, folder = stream.query, stream.folder
    reached = stream.checkpoint.reached()
    if not reached:
        return
    options = source_options(stream.settings, query) | {
        "startingTimestamp": f"{day.isoformat()}T00:00:00Z",
        "endingOffsets": json.dumps(reached),
    }
    for name in ("maxOffsetsPerTrigger", "startingOffsets", "subscribePattern"):
        del options[name]
    options["subscribe"] = ",".join(sorted(reached))
    ranges = stream.spark.read.format("slipstream").options(**options).load()
    written = [each for done in stream.write(ranges, day.isoformat()) for each in done.written]
    try:
        counts = {table.name: _check(stream, table, day, written, force=force) for table in query.appended}
    except PipelineError:
        folder.discard(written)
        raise
    for table in query.appended:
        mine = [one for one in written if one.table == table.name]
        kept = _of_others(stream, table, day)
        folder.replace_day(table, day.isoformat(), [*mine, *kept])
        yield Backfilled(table.name, counts[table.name], sum(one.rows for one in mine))
    renewed = Renewed(
        stream.spark,
        folder,
        stream.settings,
        {table.name: None for table in query.derived},
        {
            "job_throughput": f"t.minute >= {_time(day)} AND t.minute < {_time(day + dt.timedelta(days=1))}",
            "tenant_usage": f"t.day = DATE '{day.isoformat()}'",
        },
    )
    query.derive(renewed)
    for name, rows in renewed.rows.items():
        yield Backfilled(name, 0, rows)


def _check(stream: Stream, table: Table, day: dt.date, written: Sequence[Written], *, force: bool) -> int:
    """How many rows of the day the table has. Raises PipelineError."""
    mine = stream.query.share.get(table.name)
    there = stream.folder.count(table, f"date = '{day.isoformat()}'" + (f" AND {mine}" if mine else ""))
    found = sum(one.rows for one in written if one.table == table.name)
    # What leaves quarantine, or goes there, is no loss; of the other tables together nothing may be less.
    if found < there and table.name != "quarantine" and not force:
        raise PipelineError(
            f"of {day.isoformat()} the log has {found:,} rows for {table.name}, and the table has {there:,}: "
            "retention has removed the rest, and a backfill would lose it. --force takes what there is"
        )
    return there


def _of_others(stream: Stream, table: Table, day: dt.date) -> list[Written]:
    """The day's rows of a table that other queries write too, in a file of their own."""
    mine = stream.query.share.get(table.name)
    if mine is None:
        return []
    rows = stream.folder.select(table, f"date = '{day.isoformat()}' AND NOT ({mine})")
    with DateFiles(stream.folder.root, table.name, table.columns) as files:
        for batch in rows.to_batches():
            files.write(batch)
    return files.written


def _time(day: dt.date) -> str:
    at = dt.datetime.combine(day, dt.time(), dt.UTC)
    return f"arrow_cast({int(at.timestamp()) * 1_000_000}, 'Timestamp(Microsecond, Some(\"UTC\"))')"
