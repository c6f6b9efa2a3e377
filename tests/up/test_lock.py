"""One supervisor for a data directory."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from slipstream.up.lock import DirectoryBusy, is_alive, is_held, locked


def never() -> None:
    raise AssertionError("there is nothing to wait for")


def test_a_second_one_is_told_who_has_it(tmp_path: Path) -> None:
    with (
        locked(tmp_path / "up", patience_s=0, wait=never),
        pytest.raises(DirectoryBusy, match=rf"`slipstream up` \(process {os.getpid()}\) runs on {tmp_path}"),
        locked(tmp_path / "up", patience_s=0, wait=never),
    ):
        pass
    with locked(tmp_path / "up", patience_s=0, wait=never):
        assert (tmp_path / "up" / "lock").read_text() == str(os.getpid())


HOLD = """
import fcntl, sys
file = open(sys.argv[1], "a+")
fcntl.flock(file, fcntl.LOCK_EX)
file.truncate(0)
file.write(sys.argv[2])
file.flush()
print("held", flush=True)
sys.stdin.read()
"""


def test_what_a_dead_one_has_started_is_waited_for(tmp_path: Path) -> None:
    """A watcher holds the lock on behalf of one that was killed."""
    path = tmp_path / "up" / "lock"
    path.parent.mkdir()
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    command = [sys.executable, "-c", HOLD, str(path), str(dead.pid)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as watcher:
        assert watcher.stdin is not None
        assert watcher.stdout is not None
        assert watcher.stdout.readline() == b"held\n"
        with pytest.raises(DirectoryBusy, match="does not end"), locked(path.parent, patience_s=0, wait=lambda: None):
            pass
        with locked(path.parent, patience_s=60, wait=watcher.stdin.close):
            assert path.read_text() == str(os.getpid())


def test_it_is_held_as_long_as_somebody_has_it(tmp_path: Path) -> None:
    assert not is_held(tmp_path)
    with locked(tmp_path, patience_s=0, wait=never):
        assert is_held(tmp_path)
    assert not is_held(tmp_path)


def test_who_asks_whether_it_is_held_is_in_nobodys_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "lock").open("w") as asking:
        asking.write(str(os.getpid()))
        asking.flush()
        fcntl.flock(asking, fcntl.LOCK_SH)
        monkeypatch.setattr("time.sleep", lambda seconds: fcntl.flock(asking, fcntl.LOCK_UN))
        with locked(tmp_path, patience_s=0, wait=never):
            assert is_held(tmp_path)


def test_a_process_that_has_ended_is_not_alive_though_nobody_has_asked_about_it() -> None:
    with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE) as process:
        assert is_alive(process.pid)
        assert process.stdin is not None
        process.stdin.close()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it is a zombie from here on
        assert not is_alive(process.pid)
    assert not is_alive(process.pid)
