"""Dead letters of downloads in a table, for replays that select from them."""

from __future__ import annotations

import datetime as dt
import sys
from pathlib import Path
from typing import Any

from slipstream.api import LogMessage
from slipstream.client import Client
from tests.pipeline.sample_tables import make_table, place
from tests.program import Program
from tests.server_process import ServerProcess

TASKS = "fetchbox.jobs.tasks"
BEGIN = dt.datetime(2026, 11, 1, 12, tzinfo=dt.UTC)
TIMED_OUT = ("--table", "dead_letters", "--where", "failure_code = 'DOWNLOAD_TIMEOUT'", "--to", "jobs.tasks", "--yes")


def make_letters(root: Path, count: int) -> None:
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


def stored(client: Client, topic: str) -> list[LogMessage[bytes]]:
    partitions = client.topic(topic).partitions
    return [message for one in partitions for message in client.scan(topic, one.partition)]


def assert_replays(server: ServerProcess, tables: Path, *where: str) -> None:
    """Replay with Spark elsewhere, by a process that has no Java of its own or a driver of its own."""
    make_letters(tables, 90)
    server.create(TASKS)
    places = ("--server", server.base, "--tables", str(tables), *where)
    program = Program([sys.executable, "-m", "slipstream", "pipeline", "replay", *TIMED_OUT, *places])
    try:
        assert program.wait() == 0, program.said
    finally:
        program.kill()
    with Client(server.base) as client:
        assert len(stored(client, TASKS)) == 30
