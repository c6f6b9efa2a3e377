"""A query as Spark runs it: batch after batch, each handed to the tasks and then to the tables."""

from __future__ import annotations

import datetime as dt
import logging
import shutil
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from slipstream.pipeline.checkpoint import Checkpoint
from slipstream.pipeline.delta import DeltaFolder, Stamp
from slipstream.pipeline.errors import TablesUnfit
from slipstream.pipeline.queries import Anew, Batch, Query
from slipstream.pipeline.queries.task import DONE, Done, Order, writer
from slipstream.pipeline.source.options import nats_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from slipstream.pipeline.settings import PipelineSettings
    from slipstream.pipeline.source import Range
    from slipstream.pipeline.tables import Table

log = logging.getLogger(__name__)


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
        if self.checkpoint.exists:
            self._missing = [table for table in self.query.derived if not self.folder.exists(table.name)]

    def start(self, *, once: bool) -> StreamingQuery:
        for table in self.query.tables:
            self.folder.open(table)
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
        done = self.write(ranges)
        self._miss(number, [each for one in done for each in one.ranges])
        written = [each for one in done for each in one.written]
        batch = Batch(self.spark, self.folder, self.settings, self._stamp(number), written)
        for table in self.query.appended:
            batch.append(table)
        appended_s = time.monotonic() - began
        if self._missing:
            # Now the tables it is made of have this batch and all before it, and nothing of the next.
            self.make_anew(self._missing, number)
            self._missing = []
        self.query.derive(batch)
        batch.finish()
        self._compact()
        took_s = time.monotonic() - began
        self._tell(Told(self.query.name, number, took_s, appended_s, batch.rows, dt.datetime.now(dt.UTC)))

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

    def _miss(self, number: int, read: Sequence[Range]) -> None:
        """Says what lies between the batch before and this one: it was gone before it could be read, and whoever sees
        the pipeline run has not asked Spark's Java what it has logged."""
        before = self.checkpoint.offsets(number - 1) if number else {}
        begun: dict[tuple[str, int], int] = {}
        for each in read:
            key = (each.topic, each.partition)
            begun[key] = min(each.start, begun.get(key, each.start))
        for (topic, partition), start in sorted(begun.items()):
            left = before.get(topic, {}).get(str(partition))
            if left is not None and start > left:
                log.warning(
                    "%s/%d: offsets %d to %d were removed before they were read, and are in no table",
                    topic,
                    partition,
                    left,
                    start - 1,
                )

    def make_anew(self, tables: Sequence[Table], number: int | None = None) -> None:
        """Of the tables they come from; `number` is that of the batch that is under way, if one is."""
        wanted = {table.name: self.query.share.get(table.name) for table in tables}
        stamp = None if number is None else self._stamp(number)
        self.query.derive(Anew(self.spark, self.folder, self.settings, stamp, wanted))

    def _stamp(self, number: int) -> Stamp:
        return Stamp(self.checkpoint.name, number)

    def finish(self) -> None:
        """When the query has ended, and nothing came that would have brought it along."""
        if self._missing:
            self.make_anew(self._missing)
            self._missing = []

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
        # Said here, and not left to the environment of each worker: that is another one, on a cluster.
        return {**options, "bus": "nats", **nats_options()}
    return {**options, "url": settings.url}


def forget(folder: DeltaFolder, query: Query) -> None:
    """Removes what the query has made, so that it begins anew. Rows of others stay."""
    for table in query.tables:
        if not folder.exists(table.name):
            continue
        if len(table.queries) == 1:
            shutil.rmtree(folder.path(table.name))
        else:
            folder.delete(table, query.share[table.name])
    shutil.rmtree(Checkpoint(folder.root, query.name).path, ignore_errors=True)
