"""One supervisor for a data directory."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

POLL_S = 0.1
LOOKS, LOOK_S = 5, 0.05
"""Who asks whether it is held has it for an instant: that is no other supervisor."""


class DirectoryBusy(RuntimeError):
    """Another supervisor has it."""


@contextlib.contextmanager
def locked(folder: Path, *, patience_s: float, wait: Callable[[], None]) -> Iterator[int]:
    """Yields the open file; the lock is there as long as anybody has it open. A supervisor that was killed leaves a
    watcher with it until its parts have ended: that is waited for, and `wait` is called once. Raises DirectoryBusy."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("a+") as file:
        until = 0.0
        while not _taken(file.fileno()):
            file.seek(0)
            owner = file.read().strip()
            if owner.isdigit() and is_alive(int(owner)):
                raise DirectoryBusy(f"another `slipstream up` (process {owner}) runs on {folder.parent}")
            if not until:
                until = time.monotonic() + patience_s
                wait()
            elif time.monotonic() > until:
                raise DirectoryBusy(f"what an earlier `slipstream up` has started on {folder.parent} does not end")
            time.sleep(POLL_S)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield file.fileno()


def is_held(folder: Path) -> bool:
    """Whether a supervisor runs there, or what it has left."""
    try:
        with (folder / "lock").open() as file:
            return not _can_lock(file.fileno(), fcntl.LOCK_SH)
    except FileNotFoundError:
        return False
    except PermissionError:
        return True  # another user's: nobody can say


def _taken(fd: int) -> bool:
    for _ in range(LOOKS):
        if _can_lock(fd, fcntl.LOCK_EX):
            return True
        time.sleep(LOOK_S)
    return False


def _can_lock(fd: int, how: int) -> bool:
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_alive(pid: int) -> bool:
    """Whether there is such a process; one that has ended, and that nobody has asked about yet, is none."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # another user's
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return Path("/proc/self").exists() is False  # gone meanwhile; or a system without /proc
    return state != "Z"
