"""`slipstream pipeline run` as people and scripts use it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable

from slipstream.pipeline.checkpoint import Checkpoint
from slipstream.pipeline.folder_lock import locked
from slipstream.testing import MemoryBroker
from tests.cli.commands import Commands, signalled

LOOK_S = 0.05


def await_batch(tables: Path, number: int, is_running: Callable[[], bool]) -> None:
    """Wait until the checkpoint says that a batch has ended, or the command has."""
    checkpoint = Checkpoint(tables, "messages")
    while is_running() and checkpoint.last_finished != number:
        time.sleep(LOOK_S)


def rows(tables: Path, name: str) -> int:
    return int(DeltaTable(str(tables / name)).to_pyarrow_table().num_rows)


@pytest.mark.spark
@pytest.mark.usefixtures("on_spark")
def test_it_reads_what_is_there_says_so_and_goes_on_until_it_is_told_to_stop(cli: Commands, tmp_path: Path) -> None:
    tables = tmp_path / "tables"
    with MemoryBroker() as broker, broker.client() as client:
        client.create_topic("orders", 2)
        client.produce("orders", "two books", key="user:1")
        where = ("--server", broker.url, "--tables", str(tables), "--table", "messages")
        done = cli.run("pipeline", "run", "--once", *where)
        assert "messages batch 0: messages 1 in" in done.stderr
        assert [line.split()[:2] for line in done.stdout.splitlines()[:2]] == [["TABLE", "ROWS"], ["messages", "1"]]

        client.produce("orders", "one lamp", key="user:2")
        with signalled(signal.SIGTERM, lambda is_running: await_batch(tables, 1, is_running)):
            told = cli.run("pipeline", "run", *where).stderr
        assert "messages batch 1: messages 1 in" in told
    assert rows(tables, "messages") == 2


def test_a_table_that_is_not_there_is_said_with_those_that_are(cli: Commands) -> None:
    refused = cli.run("pipeline", "run", "--table", "mesages", expect=2)
    assert "there is no table 'mesages'; there are messages, download_tasks" in refused.stderr


def test_tables_in_a_bucket_are_refused(cli: Commands) -> None:
    refused = cli.run("pipeline", "run", "--once", "--tables", "s3://bucket/tables", expect=2)
    assert "tables are kept in a folder" in refused.stderr


def test_a_second_one_on_the_same_tables_is_refused(cli: Commands, tmp_path: Path) -> None:
    with locked(tmp_path):
        refused = cli.run("pipeline", "run", "--once", "--tables", str(tmp_path), expect=1)
    assert f"is written by process {os.getpid()}" in refused.stderr


def test_a_setting_that_makes_no_sense_is_said(cli: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIPELINE_BATCH_ROWS", "many")
    refused = cli.run("pipeline", "run", "--once", expect=2)
    assert "PIPELINE_BATCH_ROWS='many': a number" in refused.stderr


@pytest.mark.parametrize("command", [("run", "--once"), ("backfill", "2026-11-15")])
def test_a_server_that_is_not_there_is_said_before_spark_is_started(
    cli: Commands, tmp_path: Path, command: tuple[str, ...]
) -> None:
    nobody = ("--server", "http://127.0.0.1:9", "--tables", str(tmp_path))
    refused = cli.run("pipeline", *command, *nobody, expect=5)
    assert "cannot reach http://127.0.0.1:9" in refused.stderr
    assert "slipstream serve" in refused.stderr
    assert "Spark" not in refused.stderr


def test_topics_that_are_no_expression_are_said(cli: Commands, tmp_path: Path) -> None:
    refused = cli.run("pipeline", "run", "--once", "--topics", "[", "--tables", str(tmp_path), expect=2)
    assert "PIPELINE_TOPICS='[' is no regular expression" in refused.stderr


def test_an_address_of_no_server_is_said(cli: Commands, tmp_path: Path) -> None:
    refused = cli.run("pipeline", "run", "--once", "--server", "ftp://x", "--tables", str(tmp_path), expect=2)
    assert "'ftp://x' is no address of a server" in refused.stderr
    assert "Traceback" not in refused.stderr
