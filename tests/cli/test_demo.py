"""`slipstream demo`: ends by itself, and what it says is true."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from slipstream.cli import main
from slipstream.cli.demo_tables import questions
from slipstream.client import Client
from slipstream.demo.orders import BAD, TOPIC
from slipstream.pipeline.looking import Tables
from slipstream.slip import Control, open_store
from slipstream.slip.lookup import look_up
from slipstream.up import PartsFile, board
from slipstream.up.ports import free_port
from tests.cli.platform import plain_environment, platform
from tests.program import PATIENCE_S, Program
from tests.server_process import ServerProcess
from tests.up.supervised import until_gone

LIGHT = ("--without", "pipeline", "--without", "console")
STARTED = r"slipstream demo, in another terminal"


def begun(data: Path, *options: str, **environment: str) -> Program:
    """What somebody runs on this machine at the usual addresses is none of its business."""
    environment = {"SLIPSTREAM_URL": f"http://127.0.0.1:{free_port()}"} | environment
    command = [sys.executable, "-m", "slipstream", "demo", "--data", str(data), *options]
    return Program(command, plain_environment(**environment))


def demo(data: Path, *options: str, **environment: str) -> Program:
    """Run to its end."""
    program = begun(data, *options, **environment)
    try:
        program.wait(500)
    finally:
        program.kill()
    return program


def run_of(program: Program) -> str:
    """The name of this demonstration, as its links have it."""
    found = re.search(r"#/slips/(demo-[0-9a-f]+)-refund-large", program.said)
    assert found, program.said
    return found[1]


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_alone_it_starts_what_it_needs_makes_the_tables_and_leaves_nothing_running(tmp_path: Path) -> None:
    said = demo(tmp_path)
    assert said.process.returncode == 0, said.said
    run = run_of(said)
    assert "downloads: 11 stored, 3 of them after a retry, 2 could not be had" in said.said
    assert "18 billed, two dead letters in dlq.demo.orders" in said.said
    assert f"a dead letter was sent back, and order {BAD} is billed" in said.said
    assert "3 jobs and 12 slips are in the tables" in said.said
    assert board.read(tmp_path / "up" / "parts.json") is None, "what it started has ended"

    tables = Tables(tmp_path / "tables")
    for question, sql in questions(run).items():
        answer = tables.query(sql)
        rows = list(answer)
        assert rows, question
        shown = said.said.partition(question)[2]
        for row in rows:  # every row is printed, its first and its numbers at least
            numbers = [str(value) for value, number in zip(row, answer.numbers, strict=True) if number and value]
            pattern = r"\b.*\b".join(re.escape(text) for text in [str(row[0]), *numbers[:1]])
            assert re.search(pattern, shown), (row, shown)
    states: dict[str, int] = dict(
        tables.query(f"select state, count(*) from slip_runs where starts_with(correlation_id, '{run}-') group by 1")
    )
    slips = re.search(r"slips: (\d+) complete, (\d+) retried, (\d+) dead letters, 1 undone, 1 waits for you", said.said)
    assert slips, said.said
    assert states == {"completed": int(slips[1]), "dead-lettered": int(slips[3]), "under way": 1}
    (retried,) = tables.query(
        "select count(distinct correlation_id) from slip_steps "
        f"where state = 'retried' and starts_with(correlation_id, '{run}-')"
    )
    assert retried[0] == int(slips[2])


def test_it_uses_what_runs_any_number_of_times_and_leaves_a_refund_to_approve(tmp_path: Path) -> None:
    with platform(tmp_path, *LIGHT) as up:
        up.wait_for(STARTED)
        runs = []
        beside = begun(tmp_path, "--no-pipeline")
        for said in (demo(tmp_path, "--no-pipeline"), beside):
            said.wait()
            assert said.process.returncode == 0, said.said
            assert f"using what `slipstream up` runs (process {up.process.pid})" in said.said
            assert f"a dead letter was sent back, and order {BAD} is billed" in said.said
            runs.append(run_of(said))
        assert runs[0] != runs[1]
        with Client(up.part("broker").url) as client:
            letters = list(client.dead_letters(TOPIC))
            assert {json.loads(letter.value)["run"] for letter in letters} == set(runs)
            for letter in letters:
                assert letter.redriven == (json.loads(letter.value)["number"] == BAD), "the other is left to look at"
            assert client.topic(TOPIC).groups[0].lag == 0, "everything is billed"
        assert asyncio.run(_approve(tmp_path, f"{runs[0]}-refund-large")) == "completed"
        assert up.interrupt() == 0


async def _approve(data: Path, correlation_id: str) -> str:
    async with asyncio.timeout(60), open_store(str(data / "slips.db")) as store:
        await Control(store).approve(correlation_id, "manager", by="a test")
        while True:
            known = await look_up(store, correlation_id)
            assert known is not None
            if ends := [told.kind for told in known.told if told.kind in {"completed", "dead-lettered"}]:
                return ends[0]
            await asyncio.sleep(0.1)


def test_on_nats_it_does_what_there_is(tmp_path: Path) -> None:
    with platform(tmp_path, *LIGHT, "--bus", "nats") as up:
        up.wait_for(STARTED)
        said = demo(tmp_path, "--no-pipeline")
        assert said.process.returncode == 0, said.said
        assert "9 complete" in said.said
        assert "11 stored" in said.said
        assert "orders" not in said.said.partition("Where to look")[0], "a redrive is the broker's"
        assert up.interrupt() == 0


def test_killed_it_leaves_nothing_of_what_it_started(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "slipstream", "demo", "--data", str(tmp_path), "--no-pipeline"]
    program = Program(command, plain_environment(SLIPSTREAM_URL=f"http://127.0.0.1:{free_port()}"))
    try:
        program.wait_for("nothing runs yet")
        started = until_started(tmp_path)
        program.process.kill()
        program.process.wait()
        until_gone([started.pid, *(part.pid for part in started.parts if part.pid)])
    finally:
        program.kill()


def until_started(data: Path) -> PartsFile:
    until = time.monotonic() + PATIENCE_S
    while True:
        found = board.read(data / "up" / "parts.json")
        if found is not None and any(part.pid for part in found.parts):
            return found
        assert time.monotonic() < until, "nothing was started"
        time.sleep(0.02)


def test_where_a_part_is_missing_it_says_which(tmp_path: Path) -> None:
    with platform(tmp_path, *LIGHT, "--without", "slips") as up:
        up.wait_for(STARTED)
        said = demo(tmp_path, "--no-pipeline")
        assert said.process.returncode == 1
        assert "`slipstream up` runs without slips, which this needs" in said.said
        assert up.interrupt() == 0


def test_beside_a_named_broker_it_starts_no_platform_of_its_own(tmp_path: Path, shared: ServerProcess) -> None:
    ended = CliRunner().invoke(main, ["demo", "--data", str(tmp_path)], env={"SLIPSTREAM_URL": shared.base})
    assert ended.exit_code == 1
    assert f"a broker answers at {shared.base} (SLIPSTREAM_URL), and nothing at " in ended.stderr
    assert "--data or SLIPSTREAM_DATA" in ended.stderr
    assert board.read(tmp_path / "up" / "parts.json") is None


def test_what_it_starts_and_cannot_is_said_in_its_words(tmp_path: Path) -> None:
    (tmp_path / "somebody elses file").touch()
    said = demo(tmp_path / "somebody elses file", "--no-pipeline")
    assert said.process.returncode == 2
    said = demo(tmp_path, "--no-pipeline", SLIPSTREAM_MAX_IN_FLIGHT="many")
    assert said.process.returncode == 1
    assert "it could not be started" in said.said
    assert "SLIPSTREAM_MAX_IN_FLIGHT" in said.said
    assert board.read(tmp_path / "up" / "parts.json") is None
