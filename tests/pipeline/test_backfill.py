"""A day once more."""

from __future__ import annotations

import datetime as dt
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from slipstream.pipeline.backfill import backfill
from slipstream.pipeline.errors import PipelineError
from slipstream.pipeline.queries import queries_of
from slipstream.pipeline.run import Pipeline
from slipstream.pipeline.settings import load_settings
from slipstream.pipeline.tables import TABLES
from slipstream.testing import MemoryBroker
from tests.pipeline.compare import assert_same_tables
from tests.pipeline.story import tell


@pytest.fixture(scope="module")
def broker() -> Iterator[MemoryBroker]:
    with MemoryBroker() as broker:
        tell(broker.url, 300)
        yield broker


@pytest.fixture(scope="module")
def right(spark: SparkSession, broker: MemoryBroker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    tables = tmp_path_factory.mktemp("right")
    made(spark, broker, tables).run(queries_of([]), once=True)
    return tables


def made(spark: SparkSession, broker: MemoryBroker, tables: Path) -> Pipeline:
    return Pipeline(spark, load_settings({"url": broker.url, "tables": str(tables)}, {}))


def day_of(pipeline: Pipeline) -> dt.date:
    (found,) = set(pipeline.folder.open(TABLES["messages"]).to_pyarrow_table().column("date").to_pylist())
    assert isinstance(found, dt.date)
    return found


def test_a_day_that_was_decoded_wrongly_comes_right(
    spark: SparkSession, broker: MemoryBroker, right: Path, tmp_path: Path
) -> None:
    """As if by an older release: rows that are missing, in quarantine that need not be, and counted for nobody."""
    tables = tmp_path / "tables"
    shutil.copytree(right, tables)
    pipeline = made(spark, broker, tables)
    folder = pipeline.folder
    folder.delete(TABLES["job_status"], "partition = 1")
    folder.delete(TABLES["slip_events"], "kind = 'finished'")
    folder.open(TABLES["job_throughput"]).update({"tenant": "'nobody'"}, predicate="tasks > 0")
    folder.open(TABLES["job_snapshots"]).update({"state": "'wrong'"})
    backfill(pipeline, queries_of([]), day_of(pipeline))
    for name in TABLES:
        assert_same_tables(name, tables / name, right / name)


def test_a_day_of_which_the_log_has_less_is_left_as_it_is(
    spark: SparkSession, broker: MemoryBroker, right: Path, tmp_path: Path
) -> None:
    tables = tmp_path / "tables"
    shutil.copytree(right, tables)
    pipeline = made(spark, broker, tables)
    folder = pipeline.folder
    more = folder.select(TABLES["dead_letters"], "true").slice(0, 1)
    # A row that retention has removed from the log since.
    write_deltalake(str(tables / "dead_letters"), more, mode="append")
    there = folder.count(TABLES["dead_letters"], "true")
    with pytest.raises(PipelineError, match=r"the log has \d+ rows for dead_letters, and the table has \d+"):
        backfill(pipeline, queries_of(["dead_letters"]), day_of(pipeline))
    assert folder.count(TABLES["dead_letters"], "true") == there
    backfill(pipeline, queries_of(["dead_letters"]), day_of(pipeline), force=True)
    assert folder.count(TABLES["dead_letters"], "true") == there - 1


def test_another_day_changes_nothing(spark: SparkSession, broker: MemoryBroker, right: Path, tmp_path: Path) -> None:
    tables = tmp_path / "tables"
    shutil.copytree(right, tables)
    pipeline = made(spark, broker, tables)
    backfill(pipeline, queries_of(["job_snapshots"]), day_of(pipeline) - dt.timedelta(days=1))
    for name in TABLES:
        assert_same_tables(name, tables / name, right / name)
