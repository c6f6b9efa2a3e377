"""No part outlives its supervisor: killed for real, as by the kernel when memory runs out."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from slipstream.up import board
from tests.program import Program
from tests.up.supervised import until_gone

SUPERVISE = """
import asyncio, sys
from pathlib import Path
from slipstream.up import Supervisor, load_settings
from slipstream.up.lock import locked
from tests.up.small_part import small_part
from tests.up.supervised import Told

class Show(Told):
    def started(self, parts):
        print("all started", flush=True)

async def main(folder):
    diary = folder / "diary"
    parts = [small_part("broker", diary), small_part("jobs", diary, "stubborn", "parent", needs=("broker",))]
    with locked(folder / "up", patience_s=0, wait=lambda: None) as lock:
        await Supervisor(parts, folder / "up", load_settings({}), Show(), lock=lock).run()

asyncio.run(main(Path(sys.argv[1])))
"""


def pids_in(diary: Path) -> list[int]:
    return [int(line.rpartition(" ")[2]) for line in diary.read_text().splitlines()]


def test_a_supervisor_that_is_killed_leaves_nothing_behind(tmp_path: Path) -> None:
    program = Program([sys.executable, "-c", SUPERVISE, str(tmp_path)], {**os.environ, "PYTHONPATH": str(Path.cwd())})
    try:
        program.wait_for("all started")
        pids = pids_in(tmp_path / "diary")
        assert len(pids) == 3, "a broker, a worker that ignores SIGTERM, and its child"
        program.process.send_signal(signal.SIGKILL)
        program.process.wait(60)
        until_gone(pids)
        assert "broker stopped" in (tmp_path / "diary").read_text(), "it was asked before it was killed"
        assert board.read(tmp_path / "up" / "parts.json") is None, "what it says is a memory"
    finally:
        program.kill()


def test_a_watcher_that_is_killed_is_followed_by_another(tmp_path: Path) -> None:
    program = Program([sys.executable, "-c", SUPERVISE, str(tmp_path)], {**os.environ, "PYTHONPATH": str(Path.cwd())})
    try:
        program.wait_for("all started")
        (watcher,) = _watchers(program.process.pid)
        os.kill(watcher, signal.SIGKILL)
        until_gone([watcher])
        found = board.read(tmp_path / "up" / "parts.json")
        assert found is not None
        jobs = next(part for part in found.parts if part.name == "jobs")
        assert jobs.pid is not None
        os.kill(jobs.pid, signal.SIGKILL)  # what is started next finds another watcher
        until = time.monotonic() + 60
        while len(pids_in(tmp_path / "diary")) < 5:
            assert time.monotonic() < until, "it was not started again"
            time.sleep(0.05)
        program.process.send_signal(signal.SIGKILL)
        program.process.wait(60)
        until_gone(pids_in(tmp_path / "diary"))
    finally:
        program.kill()


def _watchers(parent: int) -> list[int]:
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [int(pid) for pid in children if b"watcher.py" in Path(f"/proc/{pid}/cmdline").read_bytes()]
