"""`slipstream produce`, `consume` and `read`."""

from __future__ import annotations

import contextlib
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.commands import Commands
from tests.forked import Forked


def test_one_message_is_stored_and_its_place_said(cli: Commands) -> None:
    assert cli.said("produce", cli.topic, "hello").strip() == f"stored at {cli.topic}/0/0"
    assert cli.json("produce", cli.topic, "again", "--key", "k") == {"partition": 0, "offset": 1}


def test_a_message_takes_everything_that_travels_with_it(cli: Commands) -> None:
    options = ["-a", "source=web", "-l", "colour=red", "--tenant", "t", "--idempotency-key", "once", "--key", "k"]
    cli.run("produce", cli.topic, "v", *options)
    assert "there before" in cli.said("produce", cli.topic, "v", *options)
    (message,) = cli.lines("read", cli.topic)
    assert (message["key"], message["attributes"]) == ("k", {"source": "web"})
    assert message["envelope"] == {"tenant_id": "t", "idempotency_key": "once", "labels": {"colour": "red"}}


def test_a_delay_is_typed_as_people_say_it(cli: Commands) -> None:
    cli.run("produce", cli.topic, "later", "--delay", "1h")
    cli.run("produce", cli.topic, "at", "--deliver-at", "2100-01-01T00:00:00Z", expect=1)  # longer than it is kept
    (message,) = cli.lines("read", cli.topic)
    assert 3_599_000 <= message["deliver_at_ms"] - message["timestamp_ms"] <= 3_601_000


def test_lines_of_stdin_and_of_a_file_are_messages(cli: Commands, tmp_path: Path) -> None:
    cli.run("produce", cli.topic, stdin=b"one\ntwo\r\n\nthree")
    path = tmp_path / "lines"
    path.write_bytes(b"four\n\xff\xfe\n")
    assert cli.json("produce", cli.topic, "--file", str(path)) == {"topic": cli.topic, "stored": 2}
    stored = cli.lines("read", cli.topic)
    assert [message["value"] for message in stored] == ["one", "two", "three", "four", "//4="]
    assert stored[-1]["encoding"] == "base64"


def test_several_values_are_several_messages(cli: Commands) -> None:
    assert "stored 3 messages" in cli.said("produce", cli.topic, "a", "b", "c")


def test_a_producer_whose_messages_are_refused_does_not_say_they_are_stored(cli: Commands) -> None:
    result = cli.run("produce", "nowhere", stdin=b"a\nb\n", expect=3)
    assert "nowhere" in result.stderr
    assert "stored" not in result.stdout


def test_lines_of_json_bring_their_keys(cli: Commands) -> None:
    cli.run("produce", cli.topic, "--key-field", "user", stdin=b'{"user": "u1"}\n{"user": 7}\n')
    assert [message["key"] for message in cli.lines("read", cli.topic)] == ["u1", "7"]
    assert "no field 'user'" in cli.run("produce", cli.topic, "--key-field", "user", stdin=b"x\n", expect=2).stderr
    assert "not both" in cli.run("produce", cli.topic, "a", "b", "--key-field", "u", "--key", "k", expect=2).stderr


def test_an_import_goes_on_where_it_was_interrupted(cli: Commands) -> None:
    assert cli.json("produce", cli.topic, "--skip-lines", "2", stdin=b"a\nb\nc\n") == {"topic": cli.topic, "stored": 1}
    command = [sys.executable, "-m", "slipstream", "produce", cli.topic]
    environment = os.environ | {"SLIPSTREAM_URL": cli.server.base}
    with Forked(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as process:
        assert process.stdin is not None
        process.stdin.write("d\ne\n")
        process.stdin.flush()
        while len(cli.lines("read", cli.topic)) < 3:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "--skip-lines 2" in said


def test_a_topic_that_is_missing_is_said_before_anything_is_read(cli: Commands) -> None:
    command = [sys.executable, "-m", "slipstream", "produce", "nowhere"]
    environment = os.environ | {"SLIPSTREAM_URL": cli.server.base}
    with Forked(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as process:
        assert process.stderr is not None
        assert "nowhere" in process.stderr.read(), "its stdin is still open"
    assert process.returncode == 3


def test_looking_at_a_topic_that_is_missing_says_so(cli: Commands) -> None:
    assert "create it first" in cli.run("consume", "nowhere", expect=3).stderr


def test_the_newest_of_several_partitions_are_the_newest_of_all(cli: Commands) -> None:
    cli.run("topic", "change", cli.topic, "-p", "3")
    for number in range(9):
        cli.server.produce(cli.topic, str(number), f"k{number}")
    assert [message["value"] for message in cli.lines("read", cli.topic, "--last", "4")] == ["5", "6", "7", "8"]


def test_what_makes_no_sense_is_said(cli: Commands, tmp_path: Path) -> None:
    assert "not both" in cli.run("produce", cli.topic, "v", "--file", "-", expect=2).stderr
    assert "one message" in cli.run("produce", cli.topic, "a", "b", "--idempotency-key", "k", expect=2).stderr
    assert "name=value" in cli.run("produce", cli.topic, "v", "-a", "x", expect=2).stderr
    assert "--group" in cli.run("consume", cli.topic, "--ack", expect=2).stderr
    assert "--delay" in cli.run("produce", cli.topic, "v", "--deliver-at", "3m", expect=2).stderr


def test_consume_takes_the_messages_of_a_group_and_acks_them(cli: Commands) -> None:
    cli.run("produce", cli.topic, "a", "b", "c")
    shown = cli.said("consume", cli.topic, "--group", "g", "--ack", "--max", "2")
    assert [line.split()[-1] for line in shown.splitlines()] == ["a", "b"]
    assert cli.json("group", "show", cli.topic, "g")["lag"] == 1
    (message,) = cli.lines("consume", cli.topic, "--group", "g", "--max", "1")
    assert (message["value"], message["attempts"]) == ("c", 1)
    assert cli.json("group", "show", cli.topic, "g")["in_flight"] == 1, "not acked: it comes again"


def test_consume_stops_when_nothing_came_for_so_long(cli: Commands) -> None:
    assert cli.said("consume", cli.topic, "--group", "g", "--wait", "50ms") == ""
    assert cli.said("consume", cli.topic, "--wait", "50ms") == ""


def test_consume_without_a_group_shows_what_comes_and_takes_nothing(cli: Commands) -> None:
    cli.run("topic", "change", cli.topic, "-p", "2")
    cli.run("produce", cli.topic, "before")
    command = [sys.executable, "-m", "slipstream", "consume", cli.topic, "--max", "3", "--json"]
    environment = os.environ | {"SLIPSTREAM_URL": cli.server.base}
    with Forked(command, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        sent, deadline = 0, time.monotonic() + 120
        while process.poll() is None and time.monotonic() < deadline:  # it begins at the end, whenever it has started
            cli.server.produce(cli.topic, f"n{sent}", f"k{sent}")
            sent += 1
        process.kill()
        lines = process.stdout.read().splitlines()
    assert len(lines) == 3
    assert not any("before" in line for line in lines)
    assert cli.json("topic", "show", cli.topic)["groups"] == []


def test_read_selects_by_offset_partition_and_number(cli: Commands) -> None:
    cli.run("produce", cli.topic, *map(str, range(6)))
    read = ["read", cli.topic]

    def values(*options: str) -> list[str]:
        return [message["value"] for message in cli.lines(*read, *options)]

    assert values("--from", "2", "--to", "4") == ["2", "3"]
    assert values("--last", "2") == ["4", "5"]
    assert values("--max", "3") == ["0", "1", "2"]
    assert values("--since", "10m") == [str(n) for n in range(6)]
    assert values("--until", "2001-01-01") == []
    assert values("--partition", "0", "--last", "1") == ["5"]
    assert cli.said(*read, "--last", "1").split()[-1] == "5"


def test_what_is_no_text_is_shown_on_one_line(cli: Commands) -> None:
    cli.run("produce", cli.topic, "two\nlines\x1b[31m [red]")
    (line,) = cli.said("read", cli.topic).splitlines()
    assert line.endswith(r"two\nlines\x1b[31m [red]")


def test_a_reader_that_closes_the_pipe_ends_it_quietly(cli: Commands) -> None:
    cli.run("produce", cli.topic, stdin="x\n" * 5_000)
    command = f"{sys.executable} -m slipstream read {cli.topic} --json | head -1; echo ${{PIPESTATUS[0]}}"
    environment = os.environ | {"SLIPSTREAM_URL": cli.server.base}
    result = subprocess.run(["bash", "-c", command], env=environment, capture_output=True, text=True, check=False)
    assert result.stderr == ""
    assert result.stdout.splitlines()[-1] == "0"


def test_nothing_to_read_from_is_said(cli: Commands) -> None:
    command = f"{sys.executable} -m slipstream produce {cli.topic} <&-"
    environment = os.environ | {"SLIPSTREAM_URL": cli.server.base}
    result = subprocess.run(["bash", "-c", command], env=environment, capture_output=True, text=True, check=False)
    assert (result.returncode, "Traceback" in result.stderr) == (2, False), result.stderr


def test_a_watcher_that_closes_the_pipe_ends_it_quietly(cli: Commands) -> None:
    reader, writer = os.pipe()
    environment = os.environ | {"SLIPSTREAM_URL": cli.server.base}
    command = [sys.executable, "-m", "slipstream", "consume", cli.topic, "--json"]
    with Forked(command, env=environment, stdout=writer, stderr=subprocess.PIPE) as watcher:
        os.close(writer)
        os.close(reader)
        while watcher.poll() is None:  # it tells nobody when it has begun to watch
            cli.run("produce", cli.topic, "x")
        assert watcher.stderr is not None
        assert (watcher.returncode, watcher.stderr.read()) == (0, "")


def test_a_pipe_without_end_does_not_go_on_when_nothing_can_be_stored(cli: Commands) -> None:
    """Nobody would hear of it before the end, and there is none."""
    environment = os.environ | {"SLIPSTREAM_URL": cli.server.base}
    command = [sys.executable, "-m", "slipstream", "produce", cli.topic]
    with Forked(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as producer:
        assert producer.stdin is not None
        assert producer.stderr is not None
        producer.stdin.write("first\n")
        producer.stdin.flush()
        while not cli.lines("read", cli.topic):
            time.sleep(0.01)
        cli.run("topic", "delete", cli.topic, "--confirm", cli.topic)
        with pytest.raises(BrokenPipeError):  # more than a pipe and a producer hold
            producer.stdin.write("more\n" * 1_000_000)
        with contextlib.suppress(BrokenPipeError):
            producer.stdin.close()
        assert producer.wait() == 1
        assert "were not stored" in producer.stderr.read()


def test_a_terminal_shows_how_much_of_a_file_is_done(cli: Commands, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.write_text("line\n" * 300)
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "slipstream", "produce", cli.topic, "--file", str(lines)]
    environment = os.environ | {"SLIPSTREAM_URL": cli.server.base, "COLUMNS": "100", "TERM": "xterm"}
    with Forked(command, stdout=subprocess.DEVNULL, stderr=theirs, env=environment):
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # how the end of a terminal is told
            while piece := os.read(ours, 4096):
                shown += piece
    os.close(ours)
    assert f"300 messages to {cli.topic}" in shown.decode()
    assert "100%" in shown.decode()
