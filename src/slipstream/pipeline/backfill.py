"""One day once more: its messages are read and decoded again, and take the place of what the tables had of them.

For when a day was decoded by a release that knew less, or came out of quarantine. Nothing is lost by it: rows whose
messages the log has no more stay as they are, and so does what was made of rows that retention has removed since.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import TYPE_CHECKING

import msgspec

from slipstream.pipeline.delta import Written
from slipstream.pipeline.errors import PipelineError
from slipstream.pipeline.queries import Query, Renewed, Touched
from slipstream.pipeline.queries.batch import read_files
from slipstream.pipeline.source import open_log
from slipstream.pipeline.stream import Stream, source_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from slipstream.pipeline.run import Pipeline
    from slipstream.pipeline.tables import Table

log = logging.getLogger(__name__)

BACKFILL = "backfill"
"""The note of one that is under way."""
PLACE = ("topic", "partition", "offset", "timestamp")
"""What tells messages apart: a topic that was created again has the same offsets at other times."""


class Backfilled(msgspec.Struct, frozen=True):
    """What became of a table."""

    table: str
    before: int | None
    """Rows of the day; None for a table that is made of others, whose rows are of no day."""
    rows: int


class _Noted(msgspec.Struct, frozen=True):
    day: dt.date
    versions: dict[str, int]
    """Of the tables, before anything was changed."""


def backfill(pipeline: Pipeline, queries: Sequence[Query], day: dt.date) -> list[Backfilled]:
    """Brings the tables up to date first, so that no batch is under way. Raises PipelineError."""
    if not pipeline.run(queries, once=True):
        raise PipelineError("stopped before the tables were up to date; nothing of the day was changed")
    return [one for query in queries for one in _backfill(pipeline.stream(query), day)]


def finish_backfill(stream: Stream) -> None:
    """Where somebody was killed in one: what is made of the day follows what was written of it."""
    noted = msgspec.convert(stream.checkpoint.noted(BACKFILL), _Noted | None)
    if noted is None:
        return
    log.warning(
        "a backfill of %s was interrupted; bringing the tables that are made of it in line. Run it once more", noted.day
    )
    _renew(stream, noted)
    stream.checkpoint.done(BACKFILL)


def _backfill(stream: Stream, day: dt.date) -> Iterator[Backfilled]:
    query, folder = stream.query, stream.folder
    written = _read_again(stream, day)
    if not written:
        log.warning("the log has nothing of %s for %s, now or ever; its tables stay as they are", day, query.name)
        return
    kept = {table.name: _not_read_again(stream, table, day, written) for table in query.appended}
    noted = _Noted(day, {table.name: folder.open(table).version() for table in query.appended})
    stream.checkpoint.note(BACKFILL, noted)
    for table in query.appended:
        mine = [one for one in written if one.table == table.name] + kept[table.name]
        before = folder.count(table, f"date = '{day.isoformat()}'")
        folder.replace_day(table, day.isoformat(), mine)
        yield Backfilled(table.name, before, sum(one.rows for one in mine))
    for name, rows in _renew(stream, noted).items():
        yield Backfilled(name, None, rows)
    stream.checkpoint.done(BACKFILL)


# What only the log has


def _read_again(stream: Stream, day: dt.date) -> list[Written]:
    """The files of the day's messages. They are read up to where the query has read, or to the end of the day."""
    options = source_options(stream.settings, stream.query)
    ends = _ends(options, stream.checkpoint.reached(), day)
    if not ends:
        return []
    for name in ("maxOffsetsPerTrigger", "startingOffsets", "subscribePattern"):
        del options[name]
    options |= {
        "subscribe": ",".join(sorted(ends)),
        "startingTimestamp": f"{day.isoformat()}T00:00:00Z",
        "endingOffsets": json.dumps(ends),
    }
    ranges = stream.spark.read.format("slipstream").options(**options).load()
    return [each for done in stream.write(ranges, day.isoformat()) for each in done.written]


def _ends(options: dict[str, str], reached: dict[str, dict[str, int]], day: dt.date) -> dict[str, dict[str, int]]:
    """Of the topics that are still there."""
    midnight = dt.datetime.combine(day + dt.timedelta(days=1), dt.time(), dt.UTC)
    with open_log(options) as opened:
        standing = opened.standing(sorted(reached), since=midnight) if reached else {}
    return {
        name: {
            str(each.number): min(reached[name][str(each.number)], each.end if each.since is None else each.since)
            for each in topic.partitions
            if str(each.number) in reached[name]
        }
        for name, topic in standing.items()
    }


def _not_read_again(stream: Stream, table: Table, day: dt.date, written: Sequence[Written]) -> list[Written]:
    """Rows of the day whose messages were not among those that were read: gone from the log, or of other queries."""
    old = read_files(stream.spark, table, stream.folder.files(table, _of(day)))
    return stream.rewrite(table, old.join(_places(stream, written), list(PLACE), "left_anti").select(*old.columns))


def _places(stream: Stream, written: Sequence[Written]) -> DataFrame:
    frames = []
    for table in stream.query.appended:
        folder = stream.folder.path(table.name)
        if paths := [str(folder / one.path) for one in written if one.table == table.name]:
            frames.append(read_files(stream.spark, table, paths).select(*PLACE))
    return reduce(lambda some, more: some.union(more), frames).distinct()


# What is made of others


def _renew(stream: Stream, noted: _Noted) -> dict[str, int]:
    """All rows that the day has a part in, or had: by table, how many there are."""
    spark, folder, settings, query = stream.spark, stream.folder, stream.settings, stream.query
    files = {
        table.name: sorted(
            {
                *folder.files(table, _of(noted.day), noted.versions[table.name]),
                *folder.files(table, _of(noted.day)),
            }
        )
        for table in query.appended
    }
    touched = Touched(spark, folder, settings, files)
    query.derive(touched)
    day, following = _time(noted.day), _time(noted.day + dt.timedelta(days=1))
    renewed = Renewed(
        spark,
        folder,
        settings,
        touched.keys,
        # All that these say of a day comes from its messages.
        {
            "job_throughput": f"t.minute >= {day} AND t.minute < {following}",
            "tenant_usage": f"t.day = DATE '{noted.day.isoformat()}'",
        },
    )
    query.derive(renewed)
    return renewed.rows


def _of(day: dt.date) -> Callable[[dict[str, object]], bool]:
    return lambda file: str(file.get("partition.date")) == day.isoformat()


def _time(day: dt.date) -> str:
    at = dt.datetime.combine(day, dt.time(), dt.UTC)
    return f"arrow_cast({int(at.timestamp()) * 1_000_000}, 'Timestamp(Microsecond, Some(\"UTC\"))')"
