"""`parts.json`."""

from __future__ import annotations

import json
import os
from pathlib import Path

from slipstream.up import PartStatus, board
from slipstream.up.lock import locked


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "parts.json"
    part = PartStatus(
        name="jobs",
        state="crashed",
        url="http://127.0.0.1:8090",
        restarts=3,
        since_ms=1_794_969_381_000,
        reason="exit code 1: no",
        log=["no"],
    )
    with locked(tmp_path, patience_s=0, wait=lambda: None):
        board.write(path, [part])
        found = board.read(path)
    assert found is not None
    assert found.parts == [part]
    assert found.pid == os.getpid()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["lock", "parts.json"]


def test_the_file_has_the_names_that_the_console_reads(tmp_path: Path) -> None:
    path = tmp_path / "parts.json"
    board.write(path, [PartStatus(name="jobs")])
    document = json.loads(path.read_text())
    assert set(document) == {"parts", "pid", "time_ms"}
    assert set(document["parts"][0]) == {"name", "state", "pid", "url", "restarts", "since_ms", "reason", "log"}


def test_what_a_dead_supervisor_has_left_says_nothing(tmp_path: Path) -> None:
    path = tmp_path / "parts.json"
    assert board.read(path) is None
    with locked(tmp_path, patience_s=0, wait=lambda: None):  # as its watcher does for a while
        path.write_text('{"parts": [], "pid": 4194304, "time_ms": 1}')  # more than Linux gives
        assert board.read(path) is None
        path.write_text("{")
        assert board.read(path) is None


def test_another_process_with_its_number_is_not_the_supervisor(tmp_path: Path) -> None:
    """In a container there is always one."""
    path = tmp_path / "parts.json"
    board.write(path, [PartStatus(name="jobs", state="running")])
    assert board.read(path) is None, "nobody has ever held the lock"
    with locked(tmp_path, patience_s=0, wait=lambda: None):
        assert board.read(path) is not None
    assert board.read(path) is None, "nobody holds it any more"
