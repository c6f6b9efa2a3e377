"""Runs the queries: once over all there is, or on and on."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from slipstream.pipeline.delta import DeltaFolder
from slipstream.pipeline.errors import InvalidPipeline, PipelineError
from slipstream.pipeline.folder_lock import locked
from slipstream.pipeline.queries import QUERIES, Query, queries_of
from slipstream.pipeline.queries.batch import read_files
from slipstream.pipeline.session import spark_session
from slipstream.pipeline.stream import Stream, Told, forget
from slipstream.pipeline.tables.slips import SLIP_RUNS, STUCK_SLIPS, stuck_slips

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from slipstream.pipeline.settings import PipelineSettings

log = logging.getLogger(__name__)

LOOK_S = 0.2
"""Between two looks at whether a query has ended."""
STUCK_EVERY_S = 10.0


class Watch:
    """Who wants to see how it goes. All of it may be called from threads of the queries."""

    def began(self, queries: Sequence[Query]) -> None:
        """They run now."""

    def told(self, told: Told) -> None:
        """A batch is in its tables."""

    def behind(self, query: str, lag: int) -> None:
        """So many messages are there that the query has not read."""


class Pipeline:
    """The queries of a folder of tables, in a session of Spark."""

    def __init__(self, spark: SparkSession, settings: PipelineSettings, watch: Watch | None = None) -> None:
        self.spark = spark
        self.settings = settings
        self.folder = DeltaFolder(root_of(settings))
        self._watch = watch or Watch()
        self._stop = threading.Event()

    def stream(self, query: Query) -> Stream:
        return Stream(query, self.spark, self.folder, self.settings, self._watch.told)

    def run(self, queries: Sequence[Query], *, once: bool) -> None:
        """Until all is read (`once`), or until `stop`. Raises PipelineError when a query fails; all stop then."""
        streams = [self.stream(query) for query in queries]
        running: list[StreamingQuery] = []
        try:
            for stream in streams:
                running.append(stream.start(once=once))
            self._watch.began(queries)
            self._await(queries, running)
        finally:
            for each in running:
                each.stop()
        if once:
            for stream in streams:
                stream.finish()
        self._look_for_stuck(queries)

    def stop(self) -> None:
        """From any thread or signal handler: `run` returns when the batches at hand are over or given up."""
        self._stop.set()

    def _await(self, queries: Sequence[Query], running: Sequence[StreamingQuery]) -> None:
        looked = time.monotonic()
        while not self._stop.wait(LOOK_S):
            for query, each in zip(queries, running, strict=True):
                if (error := each.exception()) is not None:
                    raise failed(query, error)
                self._watch.behind(query.name, lag_of(each.lastProgress))
            if not any(each.isActive for each in running):
                # One that failed just now has said so after we asked.
                for query, each in zip(queries, running, strict=True):
                    if (error := each.exception()) is not None:
                        raise failed(query, error)
                return
            if time.monotonic() - looked >= STUCK_EVERY_S:
                self._look_for_stuck(queries)
                looked = time.monotonic()

    def _look_for_stuck(self, queries: Sequence[Query]) -> None:
        """Nothing has to happen for a slip to be stuck, so it is time that asks, and not a batch."""
        if QUERIES["slips"] not in queries or not self.folder.exists(SLIP_RUNS.name):
            return

        def may_have(file: dict[str, Any]) -> bool:
            least, greatest = file.get("min.state"), file.get("max.state")
            return least is None or greatest is None or least <= "under way" <= greatest

        before_us = int(time.time() * 1_000_000) - self.settings.stuck_after_ms * 1000
        runs = read_files(self.spark, SLIP_RUNS, self.folder.files(SLIP_RUNS, may_have))
        found = stuck_slips(runs, before_us).orderBy("correlation_id", "run").toArrow().cast(STUCK_SLIPS.columns)
        there = (
            self.folder.open(STUCK_SLIPS)
            .to_pyarrow_table()
            .sort_by([("correlation_id", "ascending"), ("run", "ascending")])
        )
        if not found.equals(there.cast(STUCK_SLIPS.columns)):
            self.folder.replace(STUCK_SLIPS, found, None)


@contextlib.contextmanager
def pipeline(settings: PipelineSettings, watch: Watch | None = None) -> Iterator[Pipeline]:
    """The folder is locked, and Spark runs, until the end. Raises TablesBusy.

    Example:
        with pipeline(load_settings()) as found:
            found.run(queries_of([]), once=True)
    """
    with locked(root_of(settings)), spark_session(settings) as spark:
        yield Pipeline(spark, settings, watch)


def run_once(settings: PipelineSettings, tables: Sequence[str] = (), *, from_scratch: bool = False) -> None:
    """Brings tables up to date: all, or what is made together with these. Raises PipelineError."""
    queries = queries_of(tables)
    with pipeline(settings) as found:
        if from_scratch:
            for query in queries:
                forget(found.folder, query)
        found.run(queries, once=True)


def root_of(settings: PipelineSettings) -> Path:
    if "://" in settings.tables:
        raise InvalidPipeline(
            f"PIPELINE_TABLES={settings.tables!r}: tables are kept in a folder, which all of Spark's machines see; "
            "mount the bucket, or name another place"
        )
    return Path(settings.tables)


def failed(query: Query, error: Exception) -> PipelineError:
    """What people need of what Spark says: the reason, and not the stack of two languages."""
    text = str(error)
    for mark in ("DataLost: ", "ConnectorError: ", "InvalidOption: ", "PipelineError: "):
        if mark in text:
            text = text.partition(mark)[2].split("\n", 1)[0]
            break
    return PipelineError(f"the query {query.name} stopped: {text}")


def lag_of(progress: Any) -> int:
    """Messages between where a query is and where its topics end."""
    if not progress or not progress["sources"]:
        return 0
    source = progress["sources"][0]
    return sum(
        max(0, _furthest(latest) - _furthest(read))
        for latest, read in _pairs(source.get("latestOffset"), source.get("endOffset"))
    )


def _pairs(latest: Any, read: Any) -> Iterator[tuple[dict[str, int], dict[str, int]]]:
    reached, there = _topics(read), _topics(latest)
    for name, topic in there.items():
        yield topic["partitions"], reached.get(name, {"partitions": {}})["partitions"]


def _topics(offset: Any) -> dict[str, Any]:
    if isinstance(offset, str):
        offset = msgspec.json.decode(offset)
    return dict((offset or {}).get("topics", {}))


def _furthest(partitions: dict[str, int]) -> int:
    """Offsets count per topic, and its partitions are read up to the same."""
    return max(partitions.values(), default=0)
