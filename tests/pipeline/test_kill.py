"""The pipeline is killed at random, again and again: in the end every table is as if nothing had happened."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import StartServer
from tests.pipeline.compare import KEYS, assert_same_tables
from tests.pipeline.story import tell
from tests.server_process import ServerProcess

MESSAGES = 500_000
KILLS = 5
BATCH_ROWS = 60_000
"""Some eight batches of a query: there is always one that is not done."""
STEPS_MAX = 8
"""New files of logs and checkpoints before somebody is killed, at the most: a batch leaves more."""
DELAY_S_MAX = 1.5
PATIENCE_S = 600.0


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_tables_of_a_pipeline_that_was_killed_are_those_of_one_that_was_not(
    start_server: StartServer, tmp_path: Path
) -> None:
    server = start_server()
    tell(server.base, MESSAGES)
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    for _ in range(KILLS):
        with running(server, killed, BATCH_ROWS, tmp_path / "killed.log") as process:
            await_progress(process, killed, random.randint(1, STEPS_MAX))
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(random.random() * DELAY_S_MAX)
            assert process.poll() is None, "it was done, or gave up, before it was killed:\n" + said(
                tmp_path / "killed.log"
            )
            kill(process)
    finish(server, killed, BATCH_ROWS, tmp_path / "killed.log")
    finish(server, whole, MESSAGES, tmp_path / "whole.log")
    for name in KEYS:
        assert_same_tables(name, killed / name, whole / name)


@contextlib.contextmanager
def running(server: ServerProcess, tables: Path, batch_rows: int, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """In a group of its own, with the Java and the workers that it starts; none of them outlives it."""
    command = [sys.executable, "-m", "slipstream", "pipeline", "run", "--once"]
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("SLIPSTREAM_", "PIPELINE_"))
    }
    with log.open("ab") as output:
        process = subprocess.Popen(
            [*command, "--tables", str(tables), "--server", server.base, "--master", "local[2]"],
            stdout=output,
            stderr=output,
            env=environment | {"PIPELINE_BATCH_ROWS": str(batch_rows)},
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def kill(process: subprocess.Popen[bytes]) -> None:
    """Either all at once, as when a machine fails; or the driver alone, whose Java is left to find out."""
    if random.random() < 0.5:
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait()


def await_progress(process: subprocess.Popen[bytes], tables: Path, steps: int) -> None:
    """Until there are so many more files of what is committed. Nobody tells of them: the folder has to be asked."""
    deadline = time.monotonic() + PATIENCE_S
    there = committed(tables)
    while committed(tables) < there + steps and process.poll() is None:
        assert time.monotonic() < deadline, f"nothing was committed in {PATIENCE_S:g} s"
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.05)


def committed(tables: Path) -> int:
    """Versions of tables, and batches that were begun or are done."""
    logs = tables.glob("*/_delta_log/*.json")
    batches = (path for path in tables.glob("_checkpoints/*/*/*") if path.name.isdigit())
    return sum(1 for _ in logs) + sum(1 for _ in batches)


def finish(server: ServerProcess, tables: Path, batch_rows: int, log: Path) -> None:
    with running(server, tables, batch_rows, log) as process:
        assert process.wait(PATIENCE_S) == 0, said(log)


def said(log: Path) -> str:
    return log.read_text(errors="replace")[-10_000:]
