"""The journal turns into segments while the server runs, and nobody on the wire notices."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.conftest import StartServer


def test_messages_are_taken_and_delivered_across_many_journal_files_and_a_crash(start_server: StartServer) -> None:
    server = start_server("--journal-bytes", "4096", "--max-in-flight", "0")
    server.create("t")
    values = [f"{number}:" + "x" * 500 for number in range(100)]
    for value in values:
        while (response := server.produce("t", value)).status_code != 200:
            assert response.status_code == 429, response.text  # compaction is behind, and says so
    server.await_metric(0, "slipstream_compaction_backlog")
    assert list(server.data.glob("segments/*/*/*.arrow")), "nothing was compacted"
    assert [item["value"] for item in server.take("t", 100, group="before")] == values
    server.restart()
    assert [item["value"] for item in server.take("t", 100, group="after")] == values
    assert not any("CRITICAL" in line for line in server.log)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs to see what a process has loaded")
def test_neither_the_server_nor_its_compaction_loads_numpy_or_pandas(start_server: StartServer) -> None:
    """Where they are installed, `pyarrow` imports them: a second or more, in the server and again in the process that
    compacts, which then has nothing compacted yet when a short-lived server ends."""
    assert all(map(importlib.util.find_spec, ("numpy", "pandas"))), "this test would show nothing"
    server = start_server("--journal-changes", "50", "--compaction-backlog-max", "1000")
    server.create("t")
    for _ in range(100):
        assert server.post("/v2/produce?topic=t", json={"value": "v", "attributes": {"a": "b"}}).status_code == 200
    server.await_metric(0, "slipstream_compaction_backlog")
    assert list(server.data.glob("segments/*/*/*.arrow")), "nothing was compacted"
    for accept in ("application/json", "application/vnd.apache.arrow.stream"):
        assert server.request("GET", "/v2/topics/t/messages", headers={"Accept": accept}).status_code == 200
    assert server.process is not None
    loaded = [Path(f"/proc/{number}/maps").read_text() for number in with_children(server.process.pid)]
    assert len(loaded) == 2, "the server and the process that compacts"
    assert all("pyarrow" in maps for maps in loaded)
    assert not any(name in maps for maps in loaded for name in ("numpy", "pandas"))


def with_children(number: int) -> list[int]:
    tasks = Path(f"/proc/{number}/task").glob("*/children")
    return [number, *(int(child) for task in tasks for child in task.read_text().split())]
