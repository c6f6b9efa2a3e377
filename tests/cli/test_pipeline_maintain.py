"""`slipstream pipeline maintain`."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from slipstream.cli import main
from slipstream.pipeline.folder_lock import locked
from tests.pipeline.sample_tables import make_table, place

NOW = dt.datetime.now(dt.UTC)


def run(root: Path, *arguments: str, expect: int = 0) -> Result:
    environment = {"PIPELINE_TABLES": str(root), "NO_COLOR": "1"}
    result = CliRunner().invoke(main, ["pipeline", "maintain", *arguments], env=environment)
    assert result.exit_code == expect, f"{result.exit_code}\n{result.output}\n{result.exception!r}"
    return result


@pytest.fixture
def root(tmp_path: Path) -> Path:
    make_table(tmp_path, "messages", [place("t", 1, NOW), place("t", 0, NOW - dt.timedelta(days=100))], parts=2)
    make_table(tmp_path, "quarantine", [place("t", number, NOW) for number in range(4)], parts=4)
    make_table(tmp_path, "stuck_slips")
    return tmp_path


def test_what_was_done_is_said_table_by_table(root: Path) -> None:
    assert run(root, "--dry-run").stdout.splitlines() == [
        "messages: 1 rows would be removed",
        "quarantine: nothing to do, 4 files",
        "stuck_slips: nothing to do, 0 files",
    ]
    assert run(root).stdout.splitlines() == [
        "messages: 1 rows removed, 2 files are 1 now",
        "quarantine: 4 files are 1 now",
        "stuck_slips: nothing to do, 0 files",
    ]


def test_machines_get_a_line_for_each_table(root: Path) -> None:
    lines = [json.loads(line) for line in run(root, "--table", "quarantine", "--json").stdout.splitlines()]
    assert [line["table"] for line in lines] == ["quarantine"]
    assert (lines[0]["files_before"], lines[0]["files_after"]) == (4, 1)


def test_old_versions_are_freed_at_once_only_by_force(root: Path) -> None:
    run(root)
    assert "use --force" in run(root, "--old-versions", "10m", expect=2).stderr
    said = run(root, "--old-versions", "0", "--force").stdout
    assert "quarantine: 4 old files removed" in said


def test_by_force_it_refuses_while_a_pipeline_runs(root: Path) -> None:
    with locked(root):
        assert "is written by process" in run(root, "--old-versions", "0", "--force", expect=1).stderr
        run(root)


def test_how_long_rows_are_kept_can_be_said(root: Path) -> None:
    assert "nothing to do" in run(root, "--table", "messages", "--keep", "messages=0", "--dry-run").stdout
    assert "type a number of days" in run(root, "--keep", "messages=soon", expect=2).stderr
    assert "type a number of days" in run(root, "--keep", "messages=" + "9" * 5_000, expect=2).stderr
    before = sorted(root.rglob("*"))
    assert "36500 days at most" in run(root, "--keep", "quarantine=1000000", expect=2).stderr
    assert sorted(root.rglob("*")) == before
    assert "there is no table nope" in run(root, "--keep", "nope=3", expect=2).stderr


def test_where_there_are_no_tables_it_is_said(tmp_path: Path) -> None:
    assert "slipstream pipeline run" in run(tmp_path).stdout
    assert "no tables in [/] yet" in run(Path("[/]")).stdout
    assert "slipstream pipeline run" in run(tmp_path, "--table", "messages", expect=3).stderr
