"""The pipeline is killed at random moments: in the end every table is as if nothing had happened."""

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
from typing import TYPE_CHECKING

import pytest

from tests.conftest import StartServer
from tests.pipeline.compare import KEYS, assert_same_tables
from tests.pipeline.made import make
from tests.pipeline.story import tell
from tests.server_process import ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KILL_ALL, KILL_DRIVER = "all", "driver"
BATCHES = 6
"""Of a query, about: there is always one that is not done."""
STEPS_MAX = 8
"""New files of logs and checkpoints before the process is killed, at the most: a batch leaves more."""
PATIENCE_S = 600.0


@pytest.mark.spark
@pytest.mark.parametrize(
    ("messages", "kills", "delay_s_max"),
    [
        (4_000, (KILL_ALL, KILL_DRIVER), 0.5),
        pytest.param(500_000, (None,) * 5, 1.5, marks=pytest.mark.long),
    ],
)
def test_tables_of_a_pipeline_that_was_killed_are_those_of_one_that_was_not(
    spark: SparkSession,
    start_server: StartServer,
    tmp_path: Path,
    messages: int,
    kills: tuple[str | None, ...],
    delay_s_max: float,
) -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)  # noqa: T201 - pytest shows it where the test fails
    chance = random.Random(seed)
    server = start_server()
    tell(server.base, messages)
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    batch_rows = messages // BATCHES
    for how in kills:
        with running(server, killed, batch_rows, tmp_path / "killed.log") as process:
            await_progress(process, killed, chance.randint(1, STEPS_MAX))
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(chance.random() * delay_s_max)
            assert process.poll() is None, "it was done, or gave up, before it was killed:\n" + said(
                tmp_path / "killed.log"
            )
            kill(process, how or chance.choice((KILL_ALL, KILL_DRIVER)))
    make(spark, server.base, killed, batch_rows=messages)  # the batch that was under way has its bounds already
    make(spark, server.base, whole, batch_rows=messages)
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


def kill(process: subprocess.Popen[bytes], how: str) -> None:
    """Either all at once, as when a machine fails; or the driver alone, whose Java is left to find out."""
    if how == KILL_ALL:
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
    """Versions of tables but the first, which is empty, and batches that were begun or are done."""
    logs = (path for path in tables.glob("*/_delta_log/*.json") if path.stem.isdigit() and int(path.stem))
    batches = (path for path in tables.glob("_checkpoints/*/*/*") if path.name.isdigit())
    return sum(1 for _ in logs) + sum(1 for _ in batches)


def said(log: Path) -> str:
    return log.read_text(errors="replace")[-10_000:]
