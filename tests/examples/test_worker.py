"""The example is run as a user would run it, and its server is killed under it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server_process import ServerProcess

WORKER = Path(__file__).parents[2] / "examples" / "worker.py"


@pytest.fixture
def worker(server: ServerProcess) -> Iterator[subprocess.Popen[str]]:
    server.create("orders", 2)
    command = [sys.executable, str(WORKER), server.base, "orders", "billing", "worker-1"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    yield process
    process.kill()
    process.communicate()


def test_the_worker_finishes_everything_though_its_server_is_killed(
    server: ServerProcess, worker: subprocess.Popen[str]
) -> None:
    assert worker.stdout is not None
    seen: set[str] = set()
    for round_number in range(2):
        expected = {f"{round_number}-{n}" for n in range(20)}
        for value in sorted(expected):
            assert server.produce("orders", value, key=value).status_code == 200
        if round_number:
            server.restart()
        while not expected <= seen:
            seen.add(worker.stdout.readline().split()[-1])
    # The last ack may still be on its way when its message has been printed.
    while 'consumer_lag{group="billing",partition="0",topic="orders"} 0.0' not in (text := server.get("/metrics").text):
        assert worker.poll() is None, text
    assert len(seen) == 40


def test_a_worker_for_a_topic_that_is_not_there_says_why_it_ends(shared: ServerProcess) -> None:
    command = [sys.executable, str(WORKER), shared.base, "nowhere", "billing", "worker-1"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == 1
    assert "topic does not exist" in ended.stderr
