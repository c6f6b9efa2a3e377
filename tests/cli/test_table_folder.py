"""The exit code of what went wrong with tables."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException, StreamingQueryException

from slipstream.cli.table_folder import exit_code
from slipstream.pipeline.errors import InvalidPipeline, TablesBusy
from slipstream.pipeline.looking import NoSuchTable, QueryRefused
from slipstream.pipeline.report import NoSuchRun
from slipstream.pipeline.source import ConnectorError
from tests.forked import run
from tests.pipeline.sample_tables import END, make_table, place


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NoSuchTable("x"), 3),
        (NoSuchRun("x"), 3),
        (QueryRefused("x"), 2),
        (InvalidPipeline("x"), 2),
        (TablesBusy("x"), 1),
        (ConnectorError("x"), 1),
        (DeltaError("x"), 1),
        (OSError("x"), 1),
        (StreamingQueryException("x"), 1),
        (AnalysisException("x"), 1),
        (Py4JNetworkError("x"), 1),
        (ValueError("x"), None),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_what_is_foreseen_has_a_code(error: Exception, code: int | None) -> None:
    assert exit_code(error) == code


def test_it_needs_no_spark() -> None:
    program = (
        "import sys; sys.modules['pyspark'] = None; from slipstream.cli.table_folder import exit_code; "
        "print(exit_code(OSError()), exit_code(ValueError()))"
    )
    ran = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert ran.stdout == "1 None\n"


@pytest.mark.parametrize("command", [["table", "list"], ["pipeline", "maintain"], ["pipeline", "report", "--out", "-"]])
def test_a_table_whose_log_is_broken_is_said_in_a_line(tmp_path: Path, command: list[str]) -> None:
    make_table(tmp_path, "messages", [place("t", 1, END)])
    (tmp_path / "messages" / "_delta_log" / "00000000000000000001.json").write_text("{")
    arguments = [sys.executable, "-m", "slipstream", *command, "--tables", str(tmp_path)]
    ran = run(arguments)
    assert ran.returncode == 1
    assert ran.stderr.startswith("Error:")
    assert "Traceback" not in ran.stderr
