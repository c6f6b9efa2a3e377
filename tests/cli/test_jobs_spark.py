"""`slipstream jobs worker --engine spark` and `jobs backfill`: what is refused before Spark starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from slipstream.cli import main
from tests.bus.sites.site import free_port

HTTP = {"MESSAGE_BUS_DRIVER": "http", "NO_COLOR": "1"}


def run(*arguments: str, expect: int, **environment: str) -> Result:
    result = CliRunner().invoke(main, ["jobs", *arguments], env={**HTTP, **environment})
    assert result.exit_code == expect, f"{result.exit_code}\n{result.output}\n{result.exception!r}"
    return result


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "table.csv"
    path.write_text("url\nhttp://192.0.2.7/a\n")
    return path


@pytest.mark.parametrize("option", [("--master", "local[2]"), ("--remote", "sc://x"), ("--conf", "a=b")])
def test_options_of_spark_are_for_spark(option: tuple[str, str]) -> None:
    assert "are for --engine spark" in run("worker", *option, expect=2).output


def test_the_embedded_broker_is_refused_with_words(table: Path) -> None:
    for command in (["worker", "--engine", "spark"], ["backfill", str(table), "--type", "photos"]):
        said = run(*command, expect=2, MESSAGE_BUS_DRIVER="embedded").output
        assert "whose broker is inside one process" in said


def test_a_place_that_is_none_is_refused_before_anything_starts() -> None:
    assert "Spark runs at local[*]" in run("worker", "--engine", "spark", "--master", "nonsense", expect=2).output
    said = run("worker", "--engine", "spark", "--master", f"spark://127.0.0.1:{free_port()}", expect=5).output
    assert "there is no master of Spark" in said


def test_a_backfill_says_what_it_misses(table: Path, tmp_path: Path) -> None:
    assert "has no column job_type: say with --type" in run("backfill", str(table), expect=2).output
    other = tmp_path / "table.xml"
    other.write_text("")
    assert "ends in .parquet" in run("backfill", str(other), "--type", "photos", expect=2).output
    nobody = f"http://127.0.0.1:{free_port()}"
    said = run("backfill", str(table), "--type", "photos", "--service", nobody, expect=5).output
    assert "no service answers" in said


@pytest.mark.parametrize("command", [["worker", "--engine", "spark"], ["backfill", "TABLE", "--type", "photos"]])
def test_without_pyspark_it_says_what_to_install(command: list[str], table: Path) -> None:
    arguments = ["slipstream", "jobs", *(str(table) if word == "TABLE" else word for word in command)]
    program = (
        "import sys; sys.modules.update(dict.fromkeys(['pyspark', 'pyarrow'])); "
        f"sys.argv = {arguments!r}; from slipstream.cli import main; main()"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "COLUMNS": "200"},
    )
    assert ran.returncode == 1
    assert "pip install 'slipstream[pipeline]'" in ran.stderr
    assert "Traceback" not in ran.stderr
