"""What Spark starts for Python here."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyspark
import pytest

from slipstream.pipeline.worker_python import worker_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LIB = Path(pyspark.__file__).parent / "python" / "lib"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "with space" / "it's a cache"))
    return tmp_path / "with space" / "it's a cache"


def said(program: str, path: list[str], *arguments: str) -> list[str]:
    """What it prints with such a PYTHONPATH."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path)}
    command = [worker_python(), "-c", program, *arguments]
    return subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()


@pytest.mark.usefixtures("cache")
def test_pyspark_is_what_is_installed_and_compiled() -> None:
    (where,) = said("import pyspark; print(pyspark.__file__)", [str(LIB / "pyspark.zip")])
    assert where == pyspark.__file__


@pytest.mark.usefixtures("cache")
def test_everything_else_in_the_path_stays_and_so_do_arguments(tmp_path: Path) -> None:
    others = [str(tmp_path / "my own *"), "/elsewhere/spark/python/lib/pyspark.zip", str(tmp_path)]
    (tmp_path / "my own 1").mkdir()
    (py4j,) = LIB.glob("py4j-*.zip")
    path = [str(LIB / "pyspark.zip"), *others[:2], str(py4j), others[2]]
    kept = said("import os, sys; print(os.environ['PYTHONPATH'], *sys.argv[1:], sep='\\n')", path, "a b", "", "*:c")
    assert kept == [os.pathsep.join(others), "a b", "", "*:c"]


@pytest.mark.usefixtures("cache")
def test_without_a_path_there_is_none() -> None:
    assert said("import pyspark; print(pyspark.__file__)", []) == [pyspark.__file__]


def test_it_is_written_once_and_for_everybody(cache: Path) -> None:
    first = Path(worker_python())
    assert first.is_relative_to(cache)
    assert stat.S_IMODE(first.stat().st_mode) == 0o755
    written = first.stat().st_mtime_ns
    assert worker_python() == str(first)
    assert first.stat().st_mtime_ns == written
    assert [each.name for each in first.parent.iterdir()] == [first.name]


def test_where_nothing_can_be_written_it_is_python_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert worker_python() == sys.executable


@pytest.mark.usefixtures("cache")
def test_where_nothing_can_be_run_from_it_is_python_itself() -> None:
    """As on a disk that is mounted so: there the system refuses what the permissions of the file allow."""
    Path(worker_python()).chmod(0o644)
    assert worker_python() == sys.executable


def test_workers_of_spark_import_what_is_installed(spark: SparkSession) -> None:
    def where(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyspark.worker as found

        yield pa.RecordBatch.from_pydict({"path": [found.__file__]})

    (row,) = spark.range(0, 1, numPartitions=1).mapInArrow(where, "path string").collect()
    assert Path(row.path).parent == Path(pyspark.__file__).parent
