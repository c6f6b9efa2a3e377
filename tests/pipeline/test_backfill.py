"""A day once more."""

from __future__ import annotations

import datetime as dt
import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from slipstream.pipeline.backfill import backfill
from slipstream.pipeline.delta import DeltaFolder
from slipstream.pipeline.delta.folder import REMOVED_BEFORE
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


@pytest.fixture
def pipeline(spark: SparkSession, broker: MemoryBroker, right: Path, tmp_path: Path) -> Pipeline:
    """On tables of its own, in which all is right."""
    shutil.copytree(right, tmp_path / "tables")
    return made(spark, broker, tmp_path / "tables")


def assert_right(pipeline: Pipeline, right: Path, *names: str) -> None:
    for name in names or TABLES:
        assert_same_tables(name, pipeline.folder.path(name), right / name)


def day_of(pipeline: Pipeline) -> dt.date:
    (found,) = set(pipeline.folder.open(TABLES["messages"]).to_pyarrow_table().column("date").to_pylist())
    assert isinstance(found, dt.date)
    return found


def test_a_day_that_was_decoded_wrongly_comes_right(pipeline: Pipeline, right: Path) -> None:
    """As if an older release had left rows out, counted them for another tenant, and read another host and step."""
    folder = pipeline.folder
    folder.delete(TABLES["job_status"], "partition = 1")
    folder.delete(TABLES["slip_events"], "kind = 'finished'")
    for name in ("dead_letters", "dead_letter_causes"):
        folder.open(TABLES[name]).update({"host": "'wrong.example'"}, predicate="failure_code <> ''")
    for name in ("slip_events", "slip_steps"):
        folder.open(TABLES[name]).update({"step": "'wrong'"}, predicate="step = 'check'")
    folder.open(TABLES["job_throughput"]).update({"tenant": "'nobody'"}, predicate="tasks > 0")
    folder.open(TABLES["job_snapshots"]).update({"state": "'wrong'"})
    backfill(pipeline, queries_of([]), day_of(pipeline))
    assert_right(pipeline, right)


def test_what_the_log_has_no_more_stays(pipeline: Pipeline, right: Path) -> None:
    """However many rows come out of quarantine in the same table."""
    folder = pipeline.folder
    letters = TABLES["dead_letters"]
    gone = folder.select(letters, "job_id <> ''").slice(0, 1)
    offset = pa.array([1 << 40], pa.int64())
    gone = gone.set_column(gone.column_names.index("offset"), "offset", offset)
    folder.delete(letters, "partition = 0")
    write_deltalake(str(folder.path("dead_letters")), gone, mode="append")
    backfill(pipeline, queries_of(["dead_letters"]), day_of(pipeline))
    found = folder.select(letters, "true")
    assert found.num_rows == DeltaFolder(right).count(letters, "true") + 1
    assert 1 << 40 in found.column("offset").to_pylist()
    examples = folder.select(TABLES["dead_letter_causes"], "true").column("example_offset").to_pylist()
    assert 1 << 40 in examples, "and what is made of it has it, too"


def test_what_was_made_of_rows_that_are_past_their_time_stays(pipeline: Pipeline, right: Path) -> None:
    """As if retention had removed older logs and letters, which were counted while they were there."""
    folder = pipeline.folder
    for name in ("job_logs", "dead_letters"):
        keep_from = {REMOVED_BEFORE: (day_of(pipeline) + dt.timedelta(days=1)).isoformat()}
        folder.open(TABLES[name]).alter.set_table_properties(keep_from, raise_if_not_exists=False)
    folder.open(TABLES["tenant_usage"]).update({"stored": "stored + 1000"}, predicate="true")
    folder.open(TABLES["dead_letter_causes"]).update({"count": '"count" + 1000'}, predicate="true")
    before = {name: folder.select(TABLES[name], "true") for name in ("tenant_usage", "dead_letter_causes")}
    backfill(pipeline, queries_of(["job_logs"]), day_of(pipeline))
    for name, rows in before.items():
        assert folder.select(TABLES[name], "true").equals(rows)
    assert_right(pipeline, right, "job_snapshots")


def test_somebody_who_is_killed_between_a_day_and_what_is_made_of_it_is_followed(
    spark: SparkSession, broker: MemoryBroker, pipeline: Pipeline, right: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = pipeline.folder
    for name in ("dead_letters", "dead_letter_causes"):
        folder.open(TABLES[name]).update({"host": "'wrong.example'"}, predicate="failure_code <> ''")

    def die(*_: object) -> None:
        raise OSError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(DeltaFolder, "renew", die)
        with pytest.raises(OSError, match="killed"):
            backfill(pipeline, queries_of(["dead_letters"]), day_of(pipeline))
    made(spark, broker, folder.root).run(queries_of(["dead_letters"]), once=True)
    assert_right(pipeline, right, "dead_letters", "dead_letter_causes", "job_throughput", "tenant_usage")


def test_stopped_in_time_it_changes_nothing(pipeline: Pipeline) -> None:
    day = day_of(pipeline)
    versions = {name: pipeline.folder.open(TABLES[name]).version() for name in TABLES}
    pipeline.stop()
    with pytest.raises(PipelineError, match="nothing of the day was changed"):
        backfill(pipeline, queries_of(["job_logs"]), day)
    assert {name: pipeline.folder.open(TABLES[name]).version() for name in TABLES} == versions


def test_another_day_changes_nothing(pipeline: Pipeline, right: Path) -> None:
    backfill(pipeline, queries_of(["job_snapshots"]), day_of(pipeline) - dt.timedelta(days=1))
    assert_right(pipeline, right)
