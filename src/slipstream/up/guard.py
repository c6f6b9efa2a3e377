"""The supervisor's end of the pipe to the watcher, through which every part is announced."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from slipstream.up import watcher

CLOSE_S = 10.0


class Guard:
    """Has a watcher from the first use to `close`. One that was killed is followed by another."""

    def __init__(self, keep_open: int | None = None) -> None:
        """`keep_open`: a file that the watcher holds open with us, such as the lock on the directory."""
        self._keep_open = keep_open
        self._groups: set[int] = set()
        self._watcher: subprocess.Popen[bytes] | None = None
        self._fd = -1

    def prepare(self) -> None:
        """Before a part is started: there is a watcher from here on."""
        if self._watcher is not None:
            if self._watcher.poll() is None:
                return
            os.close(self._fd)
        reading, self._fd = os.pipe()
        command = [sys.executable, "-I", "-S", str(Path(watcher.__file__)), str(reading)]
        passed = [reading] if self._keep_open is None else [reading, self._keep_open]
        with open_for(reading):
            # A session of its own: it hears neither Ctrl-C nor that the terminal is gone.
            self._watcher = subprocess.Popen(
                command,
                pass_fds=passed,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        for group in self._groups:
            self._tell(group)

    def announce(self) -> None:
        """Called in the new process, between fork and exec: there is no moment when it runs and nobody knows of it, and
        the pipe does not end before it has said so."""
        self._tell(os.getpid())

    def began(self, group: int) -> None:
        self._groups.add(group)

    def ended(self, group: int) -> None:
        """What its leader has left behind is killed."""
        self.kill(group)
        self.forget(group)

    def forget(self, group: int) -> None:
        """There is none: nobody kills whoever gets its number next."""
        self._groups.discard(group)
        with contextlib.suppress(BrokenPipeError):  # the next `prepare` sees that it is gone
            self._tell(-group)

    def kill(self, group: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS says so of zombies
            os.killpg(group, signal.SIGKILL)

    def kill_all(self) -> None:
        for group in self._groups:
            self.kill(group)

    def close(self) -> None:
        """The watcher ends with the pipe."""
        if self._watcher is not None:
            os.close(self._fd)
            self._watcher.wait(CLOSE_S)
            self._watcher = None

    def _tell(self, number: int) -> None:
        os.write(self._fd, b"%d\n" % number)


@contextlib.contextmanager
def open_for(fd: int) -> Iterator[None]:
    """Closed here at the end; who was started meanwhile has it."""
    try:
        yield
    finally:
        os.close(fd)
