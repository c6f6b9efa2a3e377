"""`slipstream pipeline replay` as people and scripts use it: killed half-way and started again, each is there once."""

from __future__ import annotations

import datetime as dt
import json
import os
import pty
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from slipstream.api import LogMessage, TopicConfigFields
from slipstream.client import Client
from slipstream.jobs.messages import DownloadTask, decode
from slipstream.pipeline.replay import Asked, Replays
from tests.cli.commands import Commands
from tests.pipeline.cluster import Cluster, connect_server
from tests.pipeline.replay.composed import composed, from_place, message
from tests.pipeline.sample_tables import make_table, place
from tests.server_process import ServerProcess

TASKS = "fetchbox.jobs.tasks"
LETTERS = 3_000
BEGIN = dt.datetime(2026, 11, 1, 12, tzinfo=dt.UTC)
PATIENCE_S = 300


def make_letters(root: Path, count: int = LETTERS) -> None:
    """Every third timed out. Two resources have two letters, and one letter holds no task."""
    rows = [
        letter(number, number, "DOWNLOAD_TIMEOUT" if number % 3 == 0 else "UPLOAD_DENIED") for number in range(count)
    ]
    rows += [letter(count, 0, "DOWNLOAD_TIMEOUT"), letter(count + 1, 3, "DOWNLOAD_TIMEOUT")]
    rows.append(letter(count + 2, count, "DOWNLOAD_TIMEOUT", url=""))
    make_table(root, "dead_letters", rows, parts=3)


def letter(offset: int, number: int, code: str, url: str = "https://img.example/a.png") -> dict[str, Any]:
    at = BEGIN + dt.timedelta(seconds=offset)
    task = {
        "job_id": f"job-{number % 7}",
        "resource_id": f"r{number}",
        "url": url,
        "attempt": 4,
        "tenant": "acme",
        "trace_id": f"{number:032x}",
        "headers": [{"name": "accept", "value": "image/png"}],
        "storage_hint": {"bucket": "pictures", "key_prefix": "a", "metadata": [("who", "acme")]},
        "attributes": {"tags": [("n", str(number))], "extra": b"\x00\xff"},
    }
    return {
        **place("fetchbox.jobs.dlq", offset, at),
        "task": task,
        "failure_code": code,
        "attempts": 4,
        "failed_at_ms": round(at.timestamp() * 1000),
        **{name: task[name] for name in ("job_id", "resource_id", "tenant", "url")},
    }


def command(server: ServerProcess, tables: Path, *arguments: str) -> list[str]:
    where = ("--server", server.base, "--tables", str(tables), "--master", "local[2]")
    return [sys.executable, "-m", "slipstream", "pipeline", "replay", *where, *arguments]


def environment(**more: str) -> dict[str, str]:
    ours = ("SLIPSTREAM_", "PIPELINE_")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)} | more


def run(server: ServerProcess, tables: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(server, tables, *arguments),
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def stored(client: Client, topic: str) -> list[LogMessage[bytes]]:
    partitions = client.topic(topic).partitions
    return [message for one in partitions for message in client.scan(topic, one.partition)]


def await_stored(client: Client, topic: str, count: int, process: subprocess.Popen[str]) -> None:
    """Until so many are there: the server says when there are more."""
    known: dict[str, list[int]] = {topic: [0] * len(client.topic(topic).partitions)}
    while process.poll() is None:
        found = client.offsets([topic], known=known, wait_ms=10_000).topics[0]
        known[topic] = [one.end_offset for one in found.partitions]
        if sum(one.messages for one in found.partitions) >= count:
            return
    raise AssertionError(process.communicate()[1])


TIMED_OUT = ("--table", "dead_letters", "--where", "failure_code = 'DOWNLOAD_TIMEOUT'", "--to", "jobs.tasks", "--yes")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_half_way_and_started_again_each_is_written_once(server: ServerProcess, tmp_path: Path) -> None:
    tables = tmp_path / "tables"
    make_letters(tables)
    server.create(TASKS, 8)
    with Client(server.base) as client:
        half = 0
        for least in (100, 250, 400):
            process = subprocess.Popen(
                command(server, tables, *TIMED_OUT, "--rate", "100"),
                env=environment(),
                stderr=subprocess.PIPE,
                text=True,
            )
            await_stored(client, TASKS, least, process)
            process.kill()
            process.communicate()
            assert process.returncode == -signal.SIGKILL
            half = len(stored(client, TASKS))
            assert least <= half < 1_000

        done = run(server, tables, *TIMED_OUT)
        assert done.returncode == 0, done.stderr
        assert f"{half:,} of 1,000 messages are written" in done.stderr
        assert "Spark" not in done.stderr, "what is composed needs no Spark any more"
        assert done.stdout.startswith("1,000 messages written (replay ")

        found = stored(client, TASKS)
        again = run(server, tables, *TIMED_OUT)
        assert again.returncode == 0
        assert "this was replayed before: 1,000 messages, finished at" in again.stdout
        assert f"Only what came since: add  AND offset > {LETTERS + 1}  to --where" in again.stderr
        assert len(stored(client, TASKS)) == len(found) == 1_000
    expected = {f"fetchbox.jobs.dlq/0/{offset}" for offset in range(0, LETTERS, 3) if offset not in {0, 3}}
    expected |= {f"fetchbox.jobs.dlq/0/{offset}" for offset in (LETTERS, LETTERS + 1)}
    assert Counter(message.envelope.labels["replayed_from"] for message in found) == Counter(expected)  # type: ignore[index, union-attr]
    by_resource = {decode(DownloadTask, message.value).resource_id: message for message in found}
    assert len(by_resource) == 1_000
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


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_it_shows_what_it_would_write_and_writes_nothing_and_interrupted_it_says_how_to_go_on(
    server: ServerProcess, tmp_path: Path
) -> None:
    tables = tmp_path / "tables"
    make_letters(tables, 300)
    server.create(TASKS)
    shown = run(server, tables, *TIMED_OUT, "--dry-run")
    assert shown.returncode == 0, shown.stderr
    header, first, *_, last = shown.stdout.splitlines()
    assert header.split() == ["TIMESTAMP", "JOB_ID", "RESOURCE_ID", "FAILURE_CODE", "ATTEMPTS", "URL"]
    assert first.split()[2:5] == ["job-6", "r6", "DOWNLOAD_TIMEOUT"]
    assert last.startswith("100 messages from dead_letters would go to fetchbox.jobs.tasks; 3 left out")
    assert not (tables / "_replays").exists()

    with Client(server.base) as client:
        process = subprocess.Popen(
            command(server, tables, *TIMED_OUT, "--rate", "5"),
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        await_stored(client, TASKS, 10, process)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 130, err
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
        again = run(server, tables, *TIMED_OUT, "--again")
        assert again.returncode == 4
        assert "is not finished: run the command without --again" in again.stderr
        done = run(server, tables, *TIMED_OUT, "--json")
        assert json.loads(done.stdout)["state"] == "finished"
        assert len(stored(client, TASKS)) == 100


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("how", ["master", "remote"])
def test_spark_may_be_elsewhere(server: ServerProcess, tmp_path: Path, how: str) -> None:
    """Executors that do not find our package, and a driver that is not ours."""
    tables = tmp_path / "tables"
    make_letters(tables, 90)
    server.create(TASKS)
    folder = tmp_path / "spark"
    folder.mkdir()
    if how == "master":
        with Cluster(folder) as cluster:
            conf = [text for name, value in cluster.conf.items() for text in ("--conf", f"{name}={value}")]
            done = run(server, tables, *TIMED_OUT, "--master", cluster.master, *conf)
    else:
        with connect_server(folder) as url:
            done = run(server, tables, *TIMED_OUT, "--remote", url)
    assert done.returncode == 0, done.stderr
    with Client(server.base) as client:
        assert len(stored(client, TASKS)) == 30


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_who_says_no_has_nothing_written(server: ServerProcess, tmp_path: Path) -> None:
    tables = tmp_path / "tables"
    make_letters(tables, 90)
    server.create(TASKS)
    terminal, theirs = pty.openpty()
    try:
        os.write(terminal, b"n\n")
        asked = [each for each in TIMED_OUT if each != "--yes"]
        done = subprocess.run(
            command(server, tables, *asked),
            env=environment(),
            stdin=theirs,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    finally:
        os.close(terminal)
        os.close(theirs)
    assert done.returncode == 1, done.stderr
    assert "Write 30 messages to fetchbox.jobs.tasks? [y/N]" in done.stderr
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
            assert (
                f"passed over orders/0/{n}: 1 messages (2002 bytes) in one batch are more than may wait" in done.stderr
            )
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
        process = subprocess.Popen(
            command(server, tmp_path, "--table", "messages", "--all", "--to", "orders"),
            env=environment(PIPELINE_REPLAY_COMMIT_MESSAGES="3"),
            stderr=subprocess.PIPE,
            text=True,
        )
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
