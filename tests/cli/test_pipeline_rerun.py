"""`slipstream pipeline rerun` as people use it: slips that failed at a step run again from there, each once."""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from slipstream.cli import main
from tests.cli.aside import aside
from tests.cli.commands import Commands, signalled
from tests.cli.slips import kept, open_shop
from tests.pipeline.sample_tables import make_table, place
from tests.slip.lab import Lab

AT = dt.datetime(2026, 11, 1, 12, tzinfo=dt.UTC)
FAILED = [f"c-{number}" for number in range(6)]


def failed_run(correlation_id: str, minutes: float = 0, **more: Any) -> dict[str, Any]:
    at = AT + dt.timedelta(minutes=minutes)
    usual = {"run": 0, "type": "order.v1", "parent": "", "state": "dead-lettered", "failed_step": "charge"}
    usual |= {"error_code": "bank_away", "error_message": "the bank did not answer", "ended_at": at, "last_at": at}
    return {"correlation_id": correlation_id, **usual, **more}


def command(tables: Path, store: Path, *arguments: str) -> list[str]:
    asked = ("--failed-at", "charge", "--since", "2026-11-01T11:00Z", *arguments)
    return ["pipeline", "rerun", *asked, "--tables", str(tables), "--store", str(store), "--master", "local[2]"]


def run(tables: Path, store: Path, *arguments: str, expect: int = 0) -> Result:
    """In this process."""
    result = CliRunner().invoke(main, command(tables, store, *arguments), env={"NO_COLOR": "1"})
    assert result.exit_code == expect, f"{result.exit_code}\n{result.output}\n{result.exception!r}"
    return result


def start(tables: Path, store: Path, *arguments: str) -> subprocess.Popen[str]:
    """As a process."""
    ours = ("SLIPSTREAM_", "PIPELINE_", "SLIP_")
    return subprocess.Popen(
        [sys.executable, "-m", "slipstream", *command(tables, store, *arguments)],
        env={name: value for name, value in os.environ.items() if not name.startswith(ours)},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


async def fail(made: Lab, *correlation_ids: str) -> None:
    for correlation_id in correlation_ids:
        await made.submit(payload={"failures": 3}, correlation_id=correlation_id)
    for correlation_id in correlation_ids:
        assert (await made.ended(correlation_id)).kind == "dead-lettered"
        await kept(made, correlation_id, "dead-lettered")


@pytest.mark.usefixtures("on_spark")
def test_interrupted_and_killed_half_way_and_started_again_each_slip_is_run_again_once(tmp_path: Path) -> None:
    tables, store = tmp_path / "tables", tmp_path / "slips.db"
    make_table(tables, "slip_runs", [failed_run(each, number) for number, each in enumerate(FAILED)])
    with aside() as there, there.opened(open_shop(store)) as made:
        there.run(fail(made, *FAILED))

        def first_is_run(is_running: Callable[[], bool]) -> None:
            assert there.until(made.ended(FAILED[0], run=1), is_running).kind == "completed"

        with signalled(signal.SIGINT, first_is_run):
            interrupted = run(tables, store, "--yes", "--rate", "0.5", expect=130)
        assert "interrupted: 1 of 6 slips are done; the same command goes on" in interrupted.stderr

        process = start(tables, store, "--yes", "--rate", "0.5")
        second = there.until(made.ended(FAILED[1], run=1), lambda: process.poll() is None)
        process.kill()
        _, err = process.communicate()
        assert process.returncode == -signal.SIGKILL, err
        assert second.kind == "completed"

        done = run(tables, store, "--yes", "--json")
        assert "going on with replay" in done.stderr
        assert "Spark" not in done.stderr
        assert {name: json.loads(done.stdout)[name] for name in ("rerun", "run_again", "gone", "refused")} == {
            "rerun": 6,
            "run_again": 0,
            "gone": 0,
            "refused": 0,
        }
        for each in FAILED:
            assert there.run(made.ended(each, run=1)).kind == "completed"
        # The tables do not know of it yet. The store does.
        assert json.loads(run(tables, store, "--yes", "--json").stdout)["run_again"] == 6
        told = Counter((one.correlation_id, one.run) for one in made.progress if one.kind == "rerun")
    assert told == Counter((each, 1) for each in FAILED)


@pytest.mark.usefixtures("on_spark")
def test_what_is_not_to_be_run_again_is_left_alone_and_what_the_store_forgot_comes_from_its_dead_letter(
    tmp_path: Path,
) -> None:
    tables, store = tmp_path / "tables", tmp_path / "slips.db"
    runs = [failed_run("c-0"), failed_run("c-1", 1), failed_run("c-forgotten", 2), failed_run("c-gone", 3)]
    runs += [failed_run("c-again", 4), failed_run("c-again", 5, run=1, state="under way", failed_step="")]
    runs += [failed_run("c-cancelled", 6, error_code="cancelled"), failed_run("c-1.prepare.papers", 7, parent="c-1")]
    runs += [failed_run("c-late", 90), failed_run("c-early", -90), failed_run("c-ship", 8, failed_step="ship")]
    make_table(tables, "slip_runs", runs)
    with aside() as there, there.opened(open_shop(store)) as made:
        there.run(fail(made, "c-0", "c-1"))
        letter = next(each for each in made.dead if each["envelope"]["correlationId"] == "c-0")
        forgotten = json.dumps(letter).replace("c-0", "c-forgotten").encode()
        make_table(tables, "messages", [{**place("internal.deadletter.v1", 0, AT), "key": b"", "value": forgotten}])
        until = ("--until", "2026-11-01T13:00Z")
        shown = run(tables, store, *until, "--dry-run", "--json")
        assert json.loads(shown.stdout) == {"count": 4, "branches": 1, "cancelled": 1, "run_again": 1}

        done = run(tables, store, *until, "--yes", expect=1)  # one is not to be had
        assert "3 slips run again from charge; 1 are not to be had" in done.stdout.replace("\n", " ")
        for each in ("c-0", "c-1"):
            assert there.run(made.ended(each, run=1)).kind == "completed"
        # It is new to the bank, which turns it down three times, as it did at first.
        assert there.run(made.ended("c-forgotten", run=1)).kind == "dead-lettered"
        assert made.kinds("c-forgotten")[:2] == ["rerun", "started charge"]
    assert {(one.correlation_id, one.run) for one in made.progress if one.kind == "rerun"} == {
        ("c-0", 1),
        ("c-1", 1),
        ("c-forgotten", 1),
    }


# Before Spark is started


def test_no_table_of_slips_is_said(cli: Commands, tmp_path: Path) -> None:
    refused = cli.run("pipeline", "rerun", "--failed-at", "charge", "--tables", str(tmp_path), expect=3)
    assert "no tables in" in refused.stderr


def test_no_store_is_said(cli: Commands, tmp_path: Path) -> None:
    make_table(tmp_path, "slip_runs")
    where = ("--tables", str(tmp_path), "--store", str(tmp_path / "slips.db"))
    refused = cli.run("pipeline", "rerun", "--failed-at", "charge", *where, expect=5)
    assert "there is no store" in refused.stderr


def test_a_time_that_is_none_is_said(cli: Commands) -> None:
    refused = cli.run("pipeline", "rerun", "--failed-at", "charge", "--since", "yesterday", expect=2)
    assert "--since: 'yesterday' is no time" in refused.stderr
