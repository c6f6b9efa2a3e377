"""Queries that are killed, repeated, and begun again: what is in the tables is there once."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from slipstream.client import Client
from slipstream.pipeline.delta import DeltaFolder
from slipstream.pipeline.errors import PipelineError, TablesBusy, TablesUnfit
from slipstream.pipeline.folder_lock import locked
from slipstream.pipeline.queries import QUERIES, queries_of
from slipstream.pipeline.run import Pipeline, start_over
from slipstream.pipeline.settings import load_settings
from slipstream.pipeline.stream import Stream
from slipstream.pipeline.tables import TABLES
from slipstream.testing import MemoryBroker
from tests.pipeline.compare import assert_same_tables
from tests.pipeline.story import produce, story, tell

COUNT = 200


@pytest.fixture(scope="module")
def broker() -> Iterator[MemoryBroker]:
    with MemoryBroker() as broker:
        tell(broker.url, COUNT)
        yield broker


@pytest.fixture(scope="module")
def uninterrupted(spark: SparkSession, broker: MemoryBroker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    tables = tmp_path_factory.mktemp("uninterrupted")
    a_pipeline(spark, broker, tables).run(queries_of([]), once=True)
    return tables


def a_pipeline(spark: SparkSession, broker: MemoryBroker, tables: Path, **more: Any) -> Pipeline:
    return Pipeline(spark, load_settings({"url": broker.url, "tables": str(tables), **more}, {}))


def assert_same(found: Path, wanted: Path) -> None:
    for name in TABLES:
        assert_same_tables(name, found / name, wanted / name)


def test_a_batch_whose_end_spark_has_forgotten_is_not_done_again(
    spark: SparkSession, broker: MemoryBroker, uninterrupted: Path, tmp_path: Path
) -> None:
    tables = tmp_path / "tables"
    shutil.copytree(uninterrupted, tables)
    for query in QUERIES:
        commits = tables / "_checkpoints" / query / "commits"
        for newest in commits.iterdir():
            newest.unlink()
    a_pipeline(spark, broker, tables).run(queries_of([]), once=True)
    assert_same(tables, uninterrupted)
    files = {path for name in TABLES for path in (tables / name).rglob("part-*.parquet")}
    known = {Path(path) for name in TABLES for path in DeltaFolder(tables).files(TABLES[name])}
    assert {path for path in files - known if "date=" in str(path)} == set(), "files of the repeat were left behind"


def test_a_driver_that_dies_between_two_commits_is_followed_by_one_that_does_the_rest(
    spark: SparkSession, broker: MemoryBroker, uninterrupted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each finds one commit to the tables of jobs more than the one before it, makes one, and dies; the last lives."""
    made = 0

    def dying(commit: Callable[..., bool], survivors: int) -> Callable[..., bool]:
        def once_more(*args: Any, **kwargs: Any) -> bool:
            nonlocal made
            made += 1
            if made > survivors:
                raise OSError("no space left on device")
            return commit(*args, **kwargs)

        return once_more

    for survivors in range(6):
        made = 0
        with monkeypatch.context() as patch:
            patch.setattr(DeltaFolder, "append", dying(DeltaFolder.append, survivors))
            patch.setattr(DeltaFolder, "fold", dying(DeltaFolder.fold, survivors))
            with pytest.raises(PipelineError, match="the query jobs stopped: no space left on device"):
                a_pipeline(spark, broker, tmp_path).run([QUERIES["jobs"]], once=True)
    a_pipeline(spark, broker, tmp_path).run([QUERIES["jobs"]], once=True)
    for table in QUERIES["jobs"].tables:
        if table.queries == ("jobs",):
            assert_same_tables(table.name, tmp_path / table.name, uninterrupted / table.name)


def test_a_table_without_its_checkpoint_is_refused(
    spark: SparkSession, broker: MemoryBroker, uninterrupted: Path, tmp_path: Path
) -> None:
    tables = tmp_path / "tables"
    shutil.copytree(uninterrupted, tables)
    shutil.rmtree(tables / "_checkpoints" / "jobs")
    with pytest.raises(TablesUnfit, match="--from-scratch"):
        a_pipeline(spark, broker, tables).run([QUERIES["jobs"]], once=True)


def test_a_checkpoint_without_its_table_is_refused(
    spark: SparkSession, broker: MemoryBroker, uninterrupted: Path, tmp_path: Path
) -> None:
    tables = tmp_path / "tables"
    shutil.copytree(uninterrupted, tables)
    shutil.rmtree(tables / "job_status")
    with pytest.raises(TablesUnfit, match="job_status"):
        a_pipeline(spark, broker, tables).run([QUERIES["jobs"]], once=True)


def test_a_table_that_is_made_of_others_is_made_again(
    spark: SparkSession, broker: MemoryBroker, uninterrupted: Path, tmp_path: Path
) -> None:
    """As where a newer release has one more."""
    tables = tmp_path / "tables"
    shutil.copytree(uninterrupted, tables)
    for name in ("job_snapshots", "step_metrics", "run_lineage"):
        shutil.rmtree(tables / name)
    a_pipeline(spark, broker, tables).run(queries_of([]), once=True)
    assert_same(tables, uninterrupted)


def test_a_table_that_somebody_has_begun_to_make_is_made(
    spark: SparkSession, broker: MemoryBroker, uninterrupted: Path, tmp_path: Path
) -> None:
    """As where one was killed, or stopped before anything came: the table is there, and nothing in it."""
    tables = tmp_path / "tables"
    shutil.copytree(uninterrupted, tables)
    for name in ("job_snapshots", "slip_runs", "run_lineage"):
        shutil.rmtree(tables / name)
        DeltaFolder(tables).open(TABLES[name])
    a_pipeline(spark, broker, tables).run(queries_of(["job_snapshots"]), once=True)
    a_pipeline(spark, broker, tables).run(queries_of(["slip_runs"]), once=True)
    a_pipeline(spark, broker, tables).run(queries_of(["messages"]), once=True)
    assert_same(tables, uninterrupted)


def test_a_table_that_is_made_again_has_the_batch_that_comes_just_then(spark: SparkSession, tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    with MemoryBroker() as broker:
        tell(broker.url, COUNT)
        a_pipeline(spark, broker, parts).run([QUERIES["slips"]], once=True)
        for name in ("step_metrics", "slip_runs"):
            shutil.rmtree(parts / name)
        with Client(broker.url) as client:
            produce(client, story(COUNT + 300, seed=2))
        a_pipeline(spark, broker, parts).run([QUERIES["slips"]], once=True)
        a_pipeline(spark, broker, whole).run([QUERIES["slips"]], once=True)
    for name in ("slip_steps", "step_metrics", "slip_runs"):
        assert_same_tables(name, parts / name, whole / name)


def test_what_is_committed_in_part_is_not_read_again(
    spark: SparkSession, broker: MemoryBroker, uninterrupted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retention may have removed it from the log meanwhile; the files are there."""

    def die(*_: object, **__: object) -> bool:
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(DeltaFolder, "fold", die)
        with pytest.raises(PipelineError, match="no space left"):
            a_pipeline(spark, broker, tmp_path).run([QUERIES["jobs"]], once=True)
    monkeypatch.setattr(Stream, "write", lambda *_: pytest.fail("it was read again"))
    a_pipeline(spark, broker, tmp_path).run([QUERIES["jobs"]], once=True)
    for name in ("job_status", "job_snapshots", "tenant_usage"):
        assert_same_tables(name, tmp_path / name, uninterrupted / name)


def test_small_files_of_many_short_runs_are_made_fewer(spark: SparkSession, tmp_path: Path) -> None:
    """Each of them commits once or twice, and none often enough on its own."""
    with MemoryBroker() as broker, Client(broker.url) as client:
        client.create_topic("short")
        for count in (1, 2, 3):
            client.produce("short", b"%d" % count)
            found = a_pipeline(spark, broker, tmp_path, topics="short", compact_after=2)
            found.run([QUERIES["messages"]], once=True)
    assert len(found.folder.files(TABLES["messages"])) == 1
    assert found.folder.count(TABLES["messages"], "true") == 3


def test_begun_again_from_scratch_a_query_leaves_the_rows_of_others(
    spark: SparkSession, broker: MemoryBroker, uninterrupted: Path, tmp_path: Path
) -> None:
    tables = tmp_path / "tables"
    shutil.copytree(uninterrupted, tables)
    found = a_pipeline(spark, broker, tables)
    start_over(found.folder, [QUERIES["slips"]])
    assert not (tables / "slip_events").exists()
    left = found.folder.open(TABLES["quarantine"]).to_pyarrow_table().column("kind").to_pylist()
    assert left and "Progress" not in left
    found.run([QUERIES["slips"]], once=True)
    assert_same(tables, uninterrupted)


def test_one_process_writes_a_folder_at_a_time(tmp_path: Path) -> None:
    with locked(tmp_path), pytest.raises(TablesBusy, match=r"is written by process \d+"), locked(tmp_path):
        pass
    with locked(tmp_path):
        pass
