"""A query as Spark runs it: batch after batch, each handed to the tasks and then to the tables."""

from __future__ import annotations

import datetime as dt
import re
import shutil
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from slipstream.pipeline.checkpoint import Checkpoint, TopicReached
from slipstream.pipeline.delta import DeltaFolder, Stamp, Written
from slipstream.pipeline.errors import TablesUnfit
from slipstream.pipeline.missed import say_what_is_missed
from slipstream.pipeline.queries import Anew, Batch, Query
from slipstream.pipeline.queries.task import DONE, Done, Order, rewriter, writer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from slipstream.pipeline.settings import PipelineSettings
    from slipstream.pipeline.tables import Table

BATCH = "batch"
"""The note of what the batch at hand has written."""


class Told(msgspec.Struct, frozen=True):
    """What a query tells of a batch when it is done."""

    query: str
    batch: int
    took_s: float
    appended_s: float
    """Of it, until what was decoded was committed; the rest is for the tables that are made of that."""
    rows: dict[str, int]
    """Of each table: written or changed."""
    at: dt.datetime


class _Noted(msgspec.Struct, frozen=True):
    batch: int
    done: list[Done]


class Stream:
    """One of the queries, on one folder of tables."""

    def __init__(
        self,
        query: Query,
        spark: SparkSession,
        folder: DeltaFolder,
        settings: PipelineSettings,
        tell: Callable[[Told], None] = lambda _: None,
    ) -> None:
        self.query = query
        self.spark = spark
        self.folder = folder
        self.settings = settings
        self.checkpoint = Checkpoint(folder.root, query.name)
        self._tell = tell
        self._missing: list[Table] = []
        """Tables that a newer release has, or somebody has removed: they are made of the others with the next batch."""

    def look(self) -> None:
        """What is there, before any query begins. Raises TablesUnfit."""
        self._check()
        if self.checkpoint.last_finished is not None:
            self._missing = [
                table
                for table in self.query.folded
                if not self.folder.exists(table.name) or self.folder.last_batch(table, self.checkpoint.name) is None
            ]

    def start(self, *, once: bool) -> StreamingQuery:
        for table in self.query.tables:
            self.folder.open(table)
            self.folder.commits.setdefault(table.name, self.folder.small_files(table))
        ranges = self.spark.readStream.format("slipstream").options(**source_options(self.settings, self.query))
        writing = (
            ranges.load()
            .writeStream.queryName(self.query.name)
            .foreachBatch(self._take)
            .option("checkpointLocation", str(self.checkpoint.path.absolute()))
        )
        return (writing.trigger(availableNow=True) if once else writing.trigger(processingTime="0 seconds")).start()

    def _check(self) -> None:
        """Tables and checkpoint are of the same age: what only one of them knows would be lost, or be there twice. A
        table that was made, and no more, is of somebody who was killed before Spark had made the checkpoint."""
        there = [table.name for table in self.query.appended if self.folder.exists(table.name)]
        mine = [
            table.name
            for table in self.query.appended
            if table.name in there and len(table.queries) == 1 and self.folder.open(table).version() > 0
        ]
        if not self.checkpoint.exists and mine:
            raise TablesUnfit(
                f"there is {self.folder.path(mine[0])}, but not {self.checkpoint.path}, which says how far it goes: "
                "restore it, or make the tables anew with --from-scratch"
            )
        if self.checkpoint.exists and (
            missing := [table.name for table in self.query.appended if table.name not in there]
        ):
            raise TablesUnfit(
                f"{self.checkpoint.path} says how far {missing[0]} goes, but {self.folder.path(missing[0])} is gone: "
                "restore it, or make the tables anew with --from-scratch"
            )

    # A batch

    def _take(self, ranges: DataFrame, number: int) -> None:
        began = time.monotonic()
        done, is_repeated = self._done(ranges, number)
        say_what_is_missed(self._before(number), self.checkpoint.topics(number), done)
        written = [each for one in done for each in one.written]
        missing = {table.name for table in self._missing}
        batch = Batch(self.spark, self.folder, self.settings, self._stamp(number), written, missing)
        for table in self.query.appended:
            batch.append(table)
        appended_s = time.monotonic() - began
        self.query.derive(batch)
        if self._missing:
            # Now the tables they are made of have this batch and all before it, and nothing of the next.
            self._make_anew(number)
        if number == 0:
            self._stamp_all()
        if not is_repeated:
            batch.discard_orphans()
        self._compact()
        took_s = time.monotonic() - began
        self._tell(Told(self.query.name, number, took_s, appended_s, batch.rows, dt.datetime.now(dt.UTC)))

    def _done(self, ranges: DataFrame, number: int) -> tuple[list[Done], bool]:
        """What the tasks have written, and whether that was before somebody was killed. Then it is what some tables
        have already and the others are to have, whatever retention has removed from the log meanwhile."""
        noted = msgspec.convert(self.checkpoint.noted(BATCH), _Noted | None)
        if noted is not None and noted.batch == number and all(map(self._is_there, noted.done)):
            return noted.done, True
        done = self.write(ranges)
        self.checkpoint.note(BATCH, _Noted(number, done))
        return done, False

    def _is_there(self, done: Done) -> bool:
        return all((self.folder.path(one.table) / one.path).exists() for one in done.written)

    def _before(self, number: int) -> dict[str, TopicReached]:
        """How far the batch before has read, of the topics that are still asked for."""
        if not number:
            return {}
        wanted = re.compile(self.query.pattern(self.settings))
        return {name: topic for name, topic in self.checkpoint.topics(number - 1).items() if wanted.fullmatch(name)}

    def write(self, ranges: DataFrame, day: str = "") -> list[Done]:
        """The files of these ranges, by Spark's tasks; nobody sees them yet."""
        order = Order(
            options=source_options(self.settings, self.query),
            root=str(self.folder.root.absolute()),
            kinds=dict(self.query.kinds(self.settings)),
            day=day,
        )
        rows = ranges.mapInArrow(writer(order), DONE).toArrow().column("done").to_pylist()
        return [msgspec.json.decode(row, type=Done) for row in rows]

    def rewrite(self, table: Table, rows: DataFrame) -> list[Written]:
        """Files of rows that a table has had, by Spark's tasks; nobody sees them yet."""
        found = rows.mapInArrow(rewriter(str(self.folder.root.absolute()), table.name), DONE)
        done = found.toArrow().column("done").to_pylist()
        return [each for row in done for each in msgspec.json.decode(row, type=Done).written]

    def _make_anew(self, number: int) -> None:
        """Tables that are missing, of those they come from, with this batch and all before it."""
        wanted = {table.name: self.query.share.get(table.name) for table in self._missing}
        self.query.derive(Anew(self.spark, self.folder, self.settings, self._stamp(number), wanted))
        for table in self._missing:
            self.folder.stamp(table, self._stamp(number))
        self._missing = []

    def _stamp_all(self) -> None:
        """From the first batch on a table that has none of the query's stamps is one that is missing."""
        for table in self.query.folded:
            self.folder.stamp(table, self._stamp(0))

    def _stamp(self, number: int) -> Stamp:
        return Stamp(self.checkpoint.name, number)

    def finish(self) -> None:
        """When the query has ended, and nothing came that would have brought along what is missing."""
        last = self.checkpoint.last_finished
        if self._missing and last is not None:
            self._make_anew(last)

    def _compact(self) -> None:
        for table in self.query.tables:
            if self.folder.commits.get(table.name, 0) >= self.settings.compact_after:
                self.folder.compact(table)


def source_options(settings: PipelineSettings, query: Query) -> dict[str, str]:
    options = {
        "content": "ranges",
        "subscribePattern": query.pattern(settings),
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(settings.batch_rows),
        "failOnDataLoss": "true" if settings.fail_on_data_loss else "false",
    }
    if settings.bus == "nats":
        return {**options, "bus": "nats"}
    return {**options, "url": settings.url}


def forget(folder: DeltaFolder, query: Query) -> None:
    """Removes what the query has made, so that it begins anew. Rows of others stay."""
    Checkpoint(folder.root, query.name).forget()
    for table in query.tables:
        if not folder.exists(table.name):
            continue
        if len(table.queries) == 1:
            shutil.rmtree(folder.path(table.name))
        else:
            folder.delete(table, query.share[table.name])
