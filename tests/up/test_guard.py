"""What the watcher is told of the parts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from slipstream.up import watcher
from slipstream.up.guard import Guard
from slipstream.up.process import Process
from tests.client.loop import in_loop

WRITE_DOWN = """
import sys
from pathlib import Path
Path(sys.argv[0]).with_name("told").write_bytes(open(int(sys.argv[1]), "rb").read())
"""


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """All that is said to a watcher, once the guard is closed: it stands in for the real one, and kills nobody."""
    program = tmp_path / "watcher.py"
    program.write_text(WRITE_DOWN)
    monkeypatch.setattr(watcher, "__file__", str(program))
    return tmp_path / "told"


@in_loop
async def test_a_process_is_known_from_its_start_to_its_end(told: Path) -> None:
    guarding = Guard()
    process = Process(("true",), os.environ, guarding, lambda line: None)
    assert await process.ended() == 0
    guarding.close()
    assert told.read_text().split() == [str(process.pid), str(-process.pid)]


@in_loop
async def test_what_could_not_be_started_is_forgotten(told: Path) -> None:
    guarding = Guard()
    with pytest.raises(FileNotFoundError):
        Process(("/no/such/program",), os.environ, guarding, lambda line: None)
    guarding.close()
    began, ended = map(int, told.read_text().split())
    assert began == -ended
