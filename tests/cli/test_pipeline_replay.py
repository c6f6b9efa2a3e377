"""`slipstream pipeline replay` as people and scripts use it: killed half-way and started again, each is there once."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import pty
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from slipstream.api import TopicConfigFields
from slipstream.cli import main
from slipstream.client import Client
from slipstream.jobs.messages import DownloadTask, decode
from slipstream.pipeline.replay import Asked, Replays
from tests.cli.commands import Commands, signalled
from tests.cli.letters import TASKS, TIMED_OUT, make_letters, stored
from tests.pipeline.replay.composed import composed, from_place, message
from tests.pipeline.sample_tables import make_table
from tests.server_process import ServerProcess

PATIENCE_S = 300


def command(server: ServerProcess, tables: Path, *arguments: str) -> list[str]:
    where = ("--server", server.base, "--tables", str(tables), "--master", "local[2]")
    return ["pipeline", "replay", *where, *arguments]


def start(server: ServerProcess, tables: Path, *arguments: str, **more: str) -> subprocess.Popen[str]:
    """As a process."""
    program = [sys.executable, "-m", "slipstream", *command(server, tables, *arguments)]
    return subprocess.Popen(program, env=environment(**more), stderr=subprocess.PIPE, text=True)


def environment(**more: str) -> dict[str, str]:
    ours = ("SLIPSTREAM_", "PIPELINE_")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)} | more


def run(server: ServerProcess, tables: Path, *arguments: str, expect: int = 0) -> Result:
    """In this process."""
    result = CliRunner().invoke(main, command(server, tables, *arguments), env={"NO_COLOR": "1"})
    assert result.exit_code == expect, f"{result.exit_code}\n{result.output}\n{result.exception!r}"
    return result


def await_stored(client: Client, topic: str, count: int, is_running: Callable[[], bool]) -> None:
    """Wait until so many are there: the server says when there are more."""
    known: dict[str, list[int]] = {topic: [0] * len(client.topic(topic).partitions)}
    while is_running():
        found = client.offsets([topic], known=known, wait_ms=1_000).topics[0]
        known[topic] = [one.end_offset for one in found.partitions]
        if sum(one.messages for one in found.partitions) >= count:
            return
    raise AssertionError(f"the command ended before {count} messages were there")


@pytest.mark.spark
@pytest.mark.parametrize(
    ("letters", "kills"), [(600, (40, 80)), pytest.param(3_000, (100, 250, 400), marks=pytest.mark.long)]
)
def test_killed_half_way_and_started_again_each_is_written_once(
    server: ServerProcess, tmp_path: Path, letters: int, kills: tuple[int, ...]
) -> None:
    tables, count = tmp_path / "tables", letters // 3
    make_letters(tables, letters)
    server.create(TASKS, 8)
    with Client(server.base) as client:
        half = 0
        for least in kills:
            process = start(server, tables, *TIMED_OUT, "--rate", "100")
            with contextlib.suppress(AssertionError):
                await_stored(client, TASKS, least, lambda process=process: process.poll() is None)  # type: ignore[misc]
            process.kill()
            _, err = process.communicate()
            assert process.returncode == -signal.SIGKILL, err
            half = len(stored(client, TASKS))
            assert least <= half < count

        done = run(server, tables, *TIMED_OUT)
        assert f"{half:,} of {count:,} messages are written" in done.stderr
        assert "Spark" not in done.stderr, "what is composed needs no Spark any more"
        assert done.stdout.startswith(f"{count:,} messages written (replay ")

        found = stored(client, TASKS)
        again = run(server, tables, *TIMED_OUT)
        assert f"this was replayed before: {count:,} messages, finished at" in again.stdout
        assert f"Only what came since: add  AND offset > {letters + 1}  to --where" in again.stderr
        assert len(stored(client, TASKS)) == len(found) == count
    expected = {f"fetchbox.jobs.dlq/0/{offset}" for offset in range(0, letters, 3) if offset not in {0, 3}}
    expected |= {f"fetchbox.jobs.dlq/0/{offset}" for offset in (letters, letters + 1)}
    assert Counter(message.envelope.labels["replayed_from"] for message in found) == Counter(expected)  # type: ignore[index, union-attr]
    by_resource = {decode(DownloadTask, message.value).resource_id: message for message in found}
    assert len(by_resource) == count
    message = by_resource["r9"]
    task = decode(DownloadTask, message.value)
    assert (task.attempt, task.job_id, message.key) == (0, "job-2", b"job-2")
    assert (task.headers[0].value, dict(task.storage_hint.metadata), task.attributes.extra) == (
        "image/png",
        {"who": "acme"},
        b"\x00\xff",
    )
    assert message.attributes is not None
    assert message.attributes["messageType"] == "fetchbox.jobs.DownloadTask"
    assert message.attributes["traceparent"].split("-")[1] == f"{9:032x}"


@pytest.mark.usefixtures("on_spark")
def test_it_shows_what_it_would_write_and_writes_nothing_and_interrupted_it_says_how_to_go_on(
    server: ServerProcess, tmp_path: Path
) -> None:
    tables = tmp_path / "tables"
    make_letters(tables, 300)
    server.create(TASKS)
    shown = run(server, tables, *TIMED_OUT, "--dry-run")
    header, first, *_, last = shown.stdout.splitlines()
    assert header.split() == ["TIMESTAMP", "JOB_ID", "RESOURCE_ID", "FAILURE_CODE", "ATTEMPTS", "URL"]
    assert first.split()[2:5] == ["job-6", "r6", "DOWNLOAD_TIMEOUT"]
    assert last.startswith("100 messages from dead_letters would go to fetchbox.jobs.tasks; 3 left out")
    assert not (tables / "_replays").exists()

    with Client(server.base) as client:
        with signalled(signal.SIGINT, functools.partial(await_stored, client, TASKS, 5)):
            err = run(server, tables, *TIMED_OUT, "--rate", "10", expect=130).stderr
        stopped = len(stored(client, TASKS))
        assert f"interrupted: {stopped} of 100 messages are written; the same command goes on" in err
        found = run(server, tables, *TIMED_OUT, "--dry-run", "--json")
        assert json.loads(found.stdout) | {"id": "", "versions": {}} == {
            "id": "",
            "state": "unfinished",
            "written": stopped,
            "passed_over": 0,
            "count": 100,
            "left_out": 3,
            "versions": {},
        }
        again = run(server, tables, *TIMED_OUT, "--again", expect=4)
        assert "is not finished: run the command without --again" in again.stderr
        done = run(server, tables, *TIMED_OUT, "--json")
        assert json.loads(done.stdout)["state"] == "finished"
        assert len(stored(client, TASKS)) == 100


@pytest.mark.usefixtures("on_spark")
def test_who_says_no_has_nothing_written(
    server: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = tmp_path / "tables"
    make_letters(tables, 90)
    server.create(TASKS)
    asked = [each for each in TIMED_OUT if each != "--yes"]
    terminal, theirs = pty.openpty()
    with os.fdopen(theirs, "r") as stdin, os.fdopen(terminal, "wb", 0) as keyboard:
        keyboard.write(b"n\n")
        monkeypatch.setattr("sys.stdin", stdin)
        with pytest.raises(SystemExit) as ended:
            main(command(server, tables, *asked))
    assert ended.value.code == 1
    assert "Write 30 messages to fetchbox.jobs.tasks? [y/N]" in capsys.readouterr().err
    assert not list(tables.glob("_replays/*/*/"))
    with Client(server.base) as client:
        assert stored(client, TASKS) == []


# What is composed, and needs no Spark any more


def test_what_the_server_does_not_take_is_passed_over_and_said_and_the_exit_code_is_1(
    cli: Commands, tmp_path: Path
) -> None:
    make_table(tmp_path, "messages")
    rows = [message(n, cli.topic, envelope=from_place(n)) for n in range(10)]
    for n in range(3, 10):
        rows[n]["value"] = b"x" * 2_000
    composed(tmp_path, rows, question=Asked(table="messages", to=cli.topic))
    arguments = ("pipeline", "replay", "--table", "messages", "--all", "--tables", str(tmp_path), "--to", cli.topic)
    with Client(cli.server.base) as client:
        client.change_topic(cli.topic, config=TopicConfigFields(max_waiting_bytes=1_000))
        done = cli.run(*arguments, expect=1)
        assert done.stdout.startswith("3 messages written, 7 passed over (replay ")
        for n in range(3, 8):
            assert f"passed over orders/0/{n}: the message never fits: its key and value have 2002 bytes" in done.stderr
        (path,) = tmp_path.glob("_replays/*/*/passed_over.jsonl")
        assert f"All 7 that were passed over: {path}" in done.stderr
        assert [json.loads(line)["place"] for line in path.read_text().splitlines()] == [
            f"orders/0/{n}" for n in range(3, 10)
        ]
        again = cli.run(*arguments)
        assert "this was replayed before: 3 messages, 7 passed over, finished at" in again.stdout
        found = cli.json(*arguments)
        assert (found["state"], found["written"], found["passed_over"]) == ("finished before", 3, 7)
        assert len(stored(client, cli.topic)) == 3


def test_which_were_passed_over_is_in_the_json(cli: Commands, tmp_path: Path) -> None:
    make_table(tmp_path, "messages")
    rows = [message(0, cli.topic), message(1, cli.topic, value=None, envelope=from_place(17))]
    composed(tmp_path, rows, question=Asked(table="messages", to=cli.topic))
    arguments = ("pipeline", "replay", "--table", "messages", "--all", "--tables", str(tmp_path), "--to", cli.topic)
    found = cli.json(*arguments, expect=1)
    assert (found["state"], found["written"], found["passed_over"]) == ("finished", 1, 1)
    assert [(each["number"], each["place"]) for each in found["refusals"]] == [(2, "orders/0/17")]


def test_ended_while_it_waits_for_a_full_topic_it_says_how_to_go_on(server: ServerProcess, tmp_path: Path) -> None:
    make_table(tmp_path, "messages")
    replay = composed(tmp_path, [message(n) for n in range(6)], question=Asked(table="messages", to="orders"))
    with Client(server.base) as client:
        client.create_topic("orders", config=TopicConfigFields(max_waiting_messages=4))
        client.fetch("orders", "readers", wait_ms=0)
        arguments = ("--table", "messages", "--all", "--to", "orders")
        process = start(server, tmp_path, *arguments, PIPELINE_REPLAY_COMMIT_MESSAGES="3")
        assert process.stderr is not None
        said = ""
        while "the server asks to wait, and the replay does" not in said:
            line = process.stderr.readline()
            assert line, said
            said += line
        process.terminate()
        _, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 130, said + err
        assert "interrupted: 3 of 6 messages are written; the same command goes on" in err
        assert client.writer_sequence(replay.plan.writer) == len(stored(client, "orders")) == 3


def test_a_replay_whose_files_are_damaged_is_said_in_words(cli: Commands, tmp_path: Path) -> None:
    make_table(tmp_path, "messages")
    replay = composed(tmp_path, [message(0, cli.topic)], question=Asked(table="messages", to=cli.topic))
    path = replay.path / "plan.json"
    path.write_bytes(path.read_bytes()[:50])
    arguments = ("pipeline", "replay", "--table", "messages", "--all", "--tables", str(tmp_path), "--to", cli.topic)
    refused = cli.run(*arguments, expect=1)
    assert f"{path} cannot be read: " in refused.stderr
    assert f"or remove {replay.path}: the same command then selects anew" in refused.stderr


# Before Spark is started


@pytest.fixture
def letters(tmp_path: Path) -> tuple[str, ...]:
    make_table(tmp_path, "dead_letters")
    return ("--table", "dead_letters", "--tables", str(tmp_path))


WHERE = ("--where", "attempts > 3")


def test_which_rows_must_be_said(cli: Commands, letters: tuple[str, ...]) -> None:
    assert "say which rows" in cli.run("pipeline", "replay", *letters, expect=2).stderr
    assert "say which rows" in cli.run("pipeline", "replay", *letters, *WHERE, "--all", expect=2).stderr


def test_where_nobody_can_be_asked_it_is_refused(cli: Commands, letters: tuple[str, ...]) -> None:
    refused = cli.run("pipeline", "replay", *letters, *WHERE, "--to", cli.topic, expect=2)
    assert "nobody is there to be asked: say --yes to write it" in refused.stderr
    assert "starting Spark" not in refused.stderr


def test_a_topic_that_is_not_there_is_said(cli: Commands, letters: tuple[str, ...]) -> None:
    refused = cli.run("pipeline", "replay", *letters, *WHERE, "--to", "nowhere", expect=3)
    assert "there is no topic nowhere: make it with" in refused.stderr


def test_a_table_that_cannot_be_sent_back_is_said_with_those_that_can(cli: Commands) -> None:
    refused = cli.run("pipeline", "replay", "--table", "job_logs", "--all", expect=2)
    assert "those of dead_letters, download_tasks, messages can" in refused.stderr


def test_a_table_that_is_not_there_is_said(cli: Commands, tmp_path: Path) -> None:
    refused = cli.run("pipeline", "replay", "--table", "messages", "--all", "--tables", str(tmp_path), expect=3)
    assert "slipstream pipeline run --once" in refused.stderr


def test_nats_is_refused(cli: Commands, letters: tuple[str, ...]) -> None:
    refused = cli.run("pipeline", "replay", *letters, *WHERE, "--bus", "nats", expect=2)
    assert "a replay is written with commits, which only a Slipstream server has" in refused.stderr


def test_a_server_that_is_not_there_is_said(cli: Commands, letters: tuple[str, ...]) -> None:
    refused = cli.run("pipeline", "replay", *letters, *WHERE, "--server", "http://127.0.0.1:9", expect=5)
    assert "cannot reach http://127.0.0.1:9" in refused.stderr


def test_a_second_one_at_the_same_is_refused(cli: Commands, letters: tuple[str, ...], tmp_path: Path) -> None:
    question = Asked(table="dead_letters", where=WHERE[1], to=cli.topic)
    with Replays(tmp_path).turn(question):
        refused = cli.run("pipeline", "replay", *letters, *WHERE, "--to", cli.topic, "--yes", expect=4)
    assert f"process {os.getpid()} is at this replay" in refused.stderr
