"""`slipstream table`."""

from __future__ import annotations

import csv
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from deltalake import write_deltalake

from slipstream.cli import main
from slipstream.pipeline.tables import TABLES
from tests.pipeline.sample_tables import make_all


class TableCommands:
    """`slipstream table …` on a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def run(self, *arguments: str, expect: int = 0, stdin: str | None = None) -> Result:
        environment = {"PIPELINE_TABLES": str(self.root), "NO_COLOR": "1"}
        result = CliRunner().invoke(main, ["table", *arguments], input=stdin, env=environment)
        assert result.exit_code == expect, f"{result.exit_code}\n{result.output}\n{result.exception!r}"
        return result

    def said(self, *arguments: str, **how: Any) -> str:
        return self.run(*arguments, **how).stdout

    def lines(self, *arguments: str, **how: Any) -> list[Any]:
        return [json.loads(line) for line in self.run(*arguments, "--json", **how).stdout.splitlines()]


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> TableCommands:
    root = tmp_path_factory.mktemp("tables")
    make_all(root)
    return TableCommands(root)


def test_tables_are_listed(tables: TableCommands) -> None:
    lines = [line.split() for line in tables.said("list").splitlines()]
    assert lines[0] == ["TABLE", "LAYER", "ROWS", "SIZE", "FILES", "FRESH", "VERSION", "BATCH"]
    assert [line[0] for line in lines[1:]] == list(TABLES)
    assert lines[1][:3] == ["messages", "bronze", "50"]
    assert lines[1][-3:] == ["5", "messages", "8"]
    (listed,) = tables.lines("list")
    assert listed[0]["batches"] == {"messages": 8}


def test_a_table_is_shown_with_its_columns_and_newest_rows(tables: TableCommands) -> None:
    said = tables.said("show", "messages", "-n", "1")
    assert "partitioned by date, 1 there: 2026-03-14; kept for 90 days" in said
    assert [line.split()[:2] for line in said.splitlines() if line.startswith("envelope.dlq.group")]
    assert '{"order": 49}' in said
    assert '{"order": 48}' not in said
    (shown,) = tables.lines("show", "messages", "--where", '"offset" = 3')
    assert shown["rows"][0]["value"] == {"hex": "fffe00"}
    assert "no rows for which topic = 'x'" in tables.said("show", "messages", "--where", "topic = 'x'")
    assert "no rows" not in tables.said("show", "messages", "-n", "0")


def test_the_pipelines_own_columns_are_shown_on_request(tables: TableCommands) -> None:
    assert "_order" not in tables.said("show", "slip_steps")
    assert "_order" in tables.said("show", "slip_steps", "--all")
    assert "_order" in tables.lines("sql", "select * from slip_steps", "--all")[0]


def test_sql_is_answered_in_a_table(tables: TableCommands) -> None:
    said = tables.said("sql", "select state, count(*) as n from job_snapshots group by state order by n desc")
    lines = [line.split() for line in said.splitlines()]
    assert lines[:2] == [["state", "n"], ["JOB_STATE_COMPLETED", "51"]]


def test_sql_is_answered_in_json_and_csv(tables: TableCommands) -> None:
    sql = 'select key, value, headers, "timestamp" from messages where "offset" = 3'
    (row,) = tables.lines("sql", sql)
    assert row["key"] == "user:3"
    assert row["headers"] == {"traceparent": "00-1"}
    assert row["timestamp"] == "2026-03-14T12:09:21Z"
    names, values = list(csv.reader(tables.said("sql", sql, "--csv").splitlines()))
    assert names == ["key", "value", "headers", "timestamp"]
    assert values == ["user:3", "0xfffe00", '{"traceparent": "00-1"}', "2026-03-14 12:09:21Z"]
    assert "one of them" in tables.run("sql", sql, "--csv", "--json", expect=2).stderr


def test_a_question_may_come_from_stdin(tables: TableCommands) -> None:
    assert tables.lines("sql", "-", stdin="select 1 as one") == [{"one": 1}]


def test_people_see_the_first_rows_and_machines_see_all(tables: TableCommands) -> None:
    sql = "select * from job_throughput"
    result = tables.run("sql", sql)
    assert len(result.stdout.splitlines()) == 101
    assert "there are more than 100" in result.stderr
    assert len(tables.lines("sql", sql)) == 420
    assert len(tables.lines("sql", sql, "-n", "7")) == 7


def test_what_does_not_fit_is_shown_one_record_under_the_other(tables: TableCommands) -> None:
    wide = ", ".join(f"repeat('x', 60) as column_{number}" for number in range(20))
    lines = tables.said("sql", f"select {wide} from stuck_slips").splitlines()
    assert lines[0] == "row 1"
    assert lines[1].split() == ["column_0", "x" * 60]


def test_a_plan_is_drawn(tables: TableCommands) -> None:
    assert "Dummy" in tables.said("sql", "explain select 1")


def test_what_a_terminal_takes_for_an_order_does_not_reach_it(tables: TableCommands) -> None:
    assert "\x1b[2J" not in tables.said("sql", "select chr(27) || '[2J' || chr(10) || 'x' as a")
    assert "no rows: a" in tables.said("sql", "select 1 as a where false")


def test_tables_of_others_may_say_anything(tables: TableCommands, tmp_path: Path) -> None:
    rows = pa.table({"what": ["[/]\x1b[2J[red]"], "number": [1]})
    described = "[/] \x1b[2J"
    write_deltalake(str(tmp_path / "notes"), rows, partition_by=["what"], description=described)
    said = tables.said("show", "notes", "--tables", str(tmp_path))
    assert said.startswith("notes    [/] ")
    assert "1 there: [/]\\x1b[2J[red]; kept for ever" in said
    assert "\x1b" not in said + tables.said("list", "--tables", str(tmp_path))


def test_what_went_wrong_has_its_exit_code(tables: TableCommands, tmp_path: Path) -> None:
    assert "there is no table nope" in tables.run("show", "nope", expect=3).stderr
    assert "messages has key" in tables.run("sql", "select nope from messages", expect=2).stderr
    assert "only read" in tables.run("sql", "drop table messages", expect=2).stderr
    nowhere = ["--tables", str(tmp_path / "nowhere")]
    assert "slipstream pipeline run" in tables.said("list", *nowhere)
    assert tables.lines("list", *nowhere) == [[]]
    assert "slipstream pipeline run" in tables.run("sql", "select 1", *nowhere, expect=3).stderr


def test_names_are_completed(tables: TableCommands) -> None:
    environment = {
        "_SLIPSTREAM_COMPLETE": "bash_complete",
        "COMP_WORDS": "slipstream table show job_s",
        "COMP_CWORD": "3",
    }
    environment["PIPELINE_TABLES"] = str(tables.root)
    said = CliRunner().invoke(main, prog_name="slipstream", env=environment).stdout
    assert said.split() == ["plain,job_status", "plain,job_snapshots"]


def test_looking_needs_no_spark(tables: TableCommands) -> None:
    program = (
        "import sys; sys.modules['pyspark'] = None; from slipstream.cli import main; "
        f"main(['table', 'sql', 'select 1 as one', '--json', '--tables', {str(tables.root)!r}])"
    )
    ran = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert json.loads(ran.stdout) == {"one": 1}


def test_without_its_libraries_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    result = CliRunner().invoke(main, ["table", "list"])
    assert result.exit_code == 1
    assert "pip install 'slipstream[pipeline]'" in " ".join(result.stderr.replace("│", " ").split())
