"""The archive of the classes that Spark loads."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pyspark
import pytest

from slipstream.pipeline.class_archive import FIRST_WITH_CACHE, Archive, archive_for
from slipstream.pipeline.errors import PipelineError
from slipstream.pipeline.java import find_java
from tests.pipeline.test_java import a_java


def test_java_is_told_of_it_only_where_it_is_there(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "with space" / "x.classes", 17)
    assert archive.options == ""
    archive.path.parent.mkdir()
    archive.path.touch()
    assert shlex.split(archive.options) == [f"-XX:SharedArchiveFile={archive.path}", "-Xlog:cds*=off"]
    newer = Archive(archive.path, FIRST_WITH_CACHE)
    assert shlex.split(newer.options)[0] == f"-XX:AOTCache={archive.path}"


def test_each_java_has_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    one, other = a_java(tmp_path / "one", "17.0.1"), a_java(tmp_path / "other", "25.0.1")
    before = archive_for(one)
    assert before.path.is_relative_to(tmp_path / "cache" / "slipstream")
    assert before == archive_for(one)
    assert before.path != archive_for(other).path
    (one / "release").write_text('JAVA_VERSION="17.0.2"\n')
    assert archive_for(one).path != before.path, "it was updated, in the same place"
    assert archive_for(one).release == 17


def test_a_java_that_writes_none_is_said_with_what_it_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And there is nothing then that could be taken for one."""
    java = a_java(tmp_path / "java", "17.0.1")
    script = java / "bin" / "java"
    script.write_text(script.read_text() + 'case "$*" in *-version*) ;; *) echo "no room for that"; exit 3;; esac\n')
    monkeypatch.setenv("JAVA_HOME", str(java))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    archive = archive_for(java)
    with pytest.raises(PipelineError, match="has written no archive, and Spark starts as before; it said:\n"):
        archive.write()
    assert list(archive.path.parent.iterdir()) == []


@pytest.mark.spark
def test_what_was_prepared_is_what_java_takes() -> None:
    """`make test` has prepared one; made to insist on it, Java would not start with one that does not fit."""
    archive = archive_for(find_java())
    if not archive.is_there:
        pytest.skip("nobody has run `slipstream pipeline prepare`")
    insist = "-XX:AOTMode=on" if archive.release >= FIRST_WITH_CACHE else "-Xshare:on"
    spark = Path(pyspark.__file__).parent
    ran = subprocess.run(
        [str(spark / "bin" / "spark-class"), "org.apache.spark.deploy.SparkSubmit", "--version"],
        env={**os.environ, "JAVA_HOME": str(find_java()), "SPARK_SUBMIT_OPTS": f"{archive.options} {insist}"},
        check=False,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    assert pyspark.__version__ in ran.stderr
