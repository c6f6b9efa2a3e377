"""Runs the queries: once over all there is, or on and on."""

from __future__ import annotations

import contextlib
import logging
import re
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from slipstream.pipeline.backfill import finish_backfill
from slipstream.pipeline.delta import DeltaFolder
from slipstream.pipeline.errors import InvalidPipeline, PipelineError
from slipstream.pipeline.folder_lock import locked
from slipstream.pipeline.queries import QUERIES, Query, queries_of
from slipstream.pipeline.queries.batch import read_files
from slipstream.pipeline.session import spark_session
from slipstream.pipeline.stream import Stream, forget
from slipstream.pipeline.tables.slips import SLIP_RUNS, STUCK_SLIPS, stuck_slips
from slipstream.pipeline.watch import Nobody, Watch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from slipstream.pipeline.settings import PipelineSettings

log = logging.getLogger(__name__)

LOOK_S = 0.2
"""Between two looks at whether a query has ended."""
STUCK_EVERY_S = 10.0
SPARK_LOG = "_spark.log"
STARTS = 5
BEGINNING = ("Initializing StreamExecution", "Initializing sources")
"""What Spark says of a query that has not found its source yet."""
TOO_SLOW = "Timed out while waiting for the Python worker to connect back"


class Pipeline:
    """The queries of a folder of tables, in a session of Spark."""

    def __init__(self, spark: SparkSession, settings: PipelineSettings, watch: Watch | None = None) -> None:
        self.spark = spark
        self.settings = settings
        self.folder = DeltaFolder(root_of(settings))
        self._watch = watch or Nobody()
        self._stop = threading.Event()

    def stream(self, query: Query) -> Stream:
        return Stream(query, self.spark, self.folder, self.settings, self._watch.told)

    def run(self, queries: Sequence[Query], *, once: bool) -> bool:
        """Until all is read (`once`), or until `stop`; says whether all was. Raises PipelineError when a query fails;
        all stop then."""
        streams = [self.stream(query) for query in queries]
        running: list[StreamingQuery] = []
        for stream in streams:
            stream.look()
        for stream in streams:
            finish_backfill(stream)
        self._watch.began(queries)
        try:
            for stream in streams:
                running.append(self._start(stream, once=once))
            self._watch.started()
            self._await(queries, running)
        finally:
            for each in running:
                each.stop()
        is_finished = once and not self._stop.is_set()
        if is_finished:
            for stream in streams:
                stream.finish()
        self._look_for_stuck(queries)
        return is_finished

    def stop(self) -> None:
        """From any thread or signal handler: `run` returns when the batches at hand are over or given up."""
        self._stop.set()

    def _start(self, stream: Stream, *, once: bool) -> StreamingQuery:
        """One after the other: each starts a Python of its own, for which Spark waits ten seconds and no longer. On a
        machine that is busy that may not be enough, and is no reason to give up."""
        for _ in range(STARTS):
            started = stream.start(once=once)
            while started.isActive and started.status["message"] in BEGINNING and not self._stop.wait(LOOK_S):
                self._watch.turned()
            error = started.exception()
            if error is None or TOO_SLOW not in str(error):
                return started
            log.warning(
                "Python did not start within the time that Spark gives it; starting %s again", stream.query.name
            )
        return started

    def _await(self, queries: Sequence[Query], running: Sequence[StreamingQuery]) -> None:
        looked = time.monotonic()
        while not self._stop.is_set():
            _wait(next((each for each in running if each.isActive), running[0]))
            self._watch.turned()
            for query, each in zip(queries, running, strict=True):
                self._check(query, each)
                if (progress := each.lastProgress) is not None:
                    self._watch.behind(query.name, *reached(progress))
            if not any(each.isActive for each in running):
                # One that failed just now has said so after we asked.
                for query, each in zip(queries, running, strict=True):
                    self._check(query, each)
                return
            if time.monotonic() - looked >= STUCK_EVERY_S:
                self._look_for_stuck(queries)
                looked = time.monotonic()

    def _check(self, query: Query, running: StreamingQuery) -> None:
        if (error := running.exception()) is not None:
            self._watch.failed(query.name)
            raise failed(query, error)

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


def _wait(query: StreamingQuery) -> None:
    """For its end, but not for long. PySpark's types want whole seconds; its code does not."""
    from pyspark.errors import StreamingQueryException  # noqa: PLC0415

    with contextlib.suppress(StreamingQueryException):  # which the query keeps, for who asks it
        query.awaitTermination(LOOK_S)  # type: ignore[arg-type]


@contextlib.contextmanager
def pipeline(settings: PipelineSettings, watch: Watch | None = None) -> Iterator[Pipeline]:
    """The folder is locked, and Spark runs, until the end. Raises TablesBusy.

    Example:
        with pipeline(load_settings()) as found:
            found.run(queries_of([]), once=True)
    """
    root = root_of(settings)
    with locked(root), spark_session(settings, root / SPARK_LOG) as spark:
        yield Pipeline(spark, settings, watch)


def run_once(settings: PipelineSettings, tables: Sequence[str] = (), *, from_scratch: bool = False) -> None:
    """Brings tables up to date: all, or what is made together with these. Raises PipelineError."""
    queries = queries_of(tables)
    with pipeline(settings) as found:
        if from_scratch:
            start_over(found.folder, queries)
        found.run(queries, once=True)


def start_over(folder: DeltaFolder, queries: Sequence[Query]) -> None:
    """Removes what these queries have made."""
    for query in queries:
        forget(folder, query)


def root_of(settings: PipelineSettings) -> Path:
    if "://" in settings.tables:
        raise InvalidPipeline(
            f"PIPELINE_TABLES={settings.tables!r}: tables are kept in a folder, which all of Spark's machines see; "
            "mount the bucket, or name another place"
        )
    return Path(settings.tables)


_RAISED = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*: (.+)$", re.MULTILINE)
"""The last line of a Python traceback."""


def failed(query: Query, error: Exception) -> PipelineError:
    """What people need of what Spark says: the reason, and not the stacks of two languages."""
    text = str(error)
    if "Traceback (most recent call last)" in text:
        found = _RAISED.findall(text.rpartition("Traceback (most recent call last)")[2])
        text = found[0] if found else text
    return PipelineError(
        f"the query {query.name} stopped: {text}\n{SPARK_LOG}, beside the tables, has all that Spark said"
    )


def reached(progress: Any) -> tuple[int, int]:
    """How many messages lie behind a query, and how many before it. Offsets count per topic, and its partitions are
    read up to the same."""
    if not progress or not progress["sources"]:
        return 0, 0
    source = progress["sources"][0]
    read, there = _ends(source["endOffset"]), _ends(source["latestOffset"])
    lag = sum(max(0, end - read.get(name, 0)) for name, end in there.items())
    return sum(read.values()), lag


def _ends(offset: Any) -> dict[str, int]:
    """By topic."""
    if isinstance(offset, str):
        offset = msgspec.json.decode(offset)
    topics = (offset or {}).get("topics", {})
    return {name: max(topic["partitions"].values(), default=0) for name, topic in topics.items()}
