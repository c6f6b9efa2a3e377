"""A program that a test starts, reads, and ends."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.forked import Forked

PATIENCE_S = 120.0
"""Spark takes its time to start, and the machine is shared."""


class Program:
    """Started at once, in a process group of its own with whatever it starts. All that it says is read, also
    on stderr."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
        log: Path | None = None,
    ) -> None:
        self.lines: list[str] = []
        self._news = threading.Condition()
        self._is_silent = False
        """There is nobody left who could say something."""
        self.process = self._start(command, environment, folder)
        self._reader = threading.Thread(target=self._read, args=(log or Path(os.devnull),), daemon=True)
        self._reader.start()

    def _start(
        self, command: Sequence[str], environment: Mapping[str, str] | None, folder: Path | None
    ) -> Forked | subprocess.Popen[str]:
        streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "start_new_session": True}
        if command[0] == sys.executable:
            return Forked(command, env=environment, cwd=folder, **streams)
        return subprocess.Popen(command, env=environment, cwd=folder, stdin=subprocess.DEVNULL, text=True, **streams)

    def _read(self, log: Path) -> None:
        assert self.process.stdout is not None
        with log.open("w") as kept, self.process.stdout as lines:
            for line in lines:
                kept.write(line)
                kept.flush()
                with self._news:
                    self.lines.append(line)
                    self._news.notify_all()
        with self._news:
            self._is_silent = True
            self._news.notify_all()

    @property
    def said(self) -> str:
        return "".join(self.lines)

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Returns when a line has matched."""

        def found() -> re.Match[str] | None:
            return next((match for line in self.lines if (match := re.search(pattern, line))), None)

        with self._news:
            self._news.wait_for(lambda: found() or self._is_silent, PATIENCE_S)
            match = found()
        assert match is not None, f"nobody has said {pattern!r}:\n{self.said}"
        return match

    def stop(self) -> int:
        """As an operator does; returns the exit code."""
        self.process.terminate()
        return self.wait()

    def wait(self, patience_s: float = PATIENCE_S) -> int:
        code = self.process.wait(patience_s)
        self._reader.join()
        return code

    def kill(self) -> None:
        """With all that it has started, as when the machine has lost power."""
        with contextlib.suppress(ProcessLookupError):  # it has ended by itself
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()  # also where it has no group of its own yet
        self.wait()
