"""`slipstream slip worker --engine spark` in a process of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

READY_S = 120.0


class SparkWorker:
    """Started at once; `wait_for` what it says, and end it as you like."""

    def __init__(self, url: str, folder: Path, prefix: str, *arguments: str, **environment: str) -> None:
        command = [sys.executable, "-m", "slipstream", "slip", "worker", "--engine", "spark", *arguments]
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PIPELINE_", "SLIP"))}
        self.lines: list[str] = []
        self._news = threading.Condition()
        self.process = subprocess.Popen(
            command,
            env={
                **inherited,
                "MESSAGE_BUS_DRIVER": "http",
                "SLIPSTREAM_URL": url,
                "BUS_PREFIX": prefix,
                "PIPELINE_TABLES": str(folder / "tables"),
                "SLIP_STORE": str(folder / "slips.db"),
                "NO_COLOR": "1",
                **environment,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                with self._news:
                    self.lines.append(line)
                    self._news.notify_all()
        with self._news:
            self.lines.append("")
            self._news.notify_all()

    @property
    def said(self) -> str:
        return "".join(self.lines)

    def wait_for(self, text: str) -> None:
        with self._news:
            self._news.wait_for(lambda: text in self.said or "" in self.lines, READY_S)
        assert text in self.said, f"nobody said {text!r}:\n{self.said}"

    def kill(self) -> None:
        """With its Java and its Python processes, as when the machine has lost power."""
        with contextlib.suppress(ProcessLookupError):  # it has ended by itself
            os.killpg(self.process.pid, signal.SIGKILL)
        self._end()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self._end()

    def wait(self) -> int:
        return self._end()

    def _end(self) -> int:
        code = self.process.wait(READY_S)
        self._reader.join()
        return code
