"""Servers that all processes of a test run share: a broker, NATS and Pub/Sub, each started once.

The process that distributes the tests starts them and ends them; its workers only learn where they listen. A test that
stops, freezes or counts on an empty server starts one of its own instead. Tests that share a server keep to topics of
their own.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.bus.sites.pubsub_server.build import Missing, server
from tests.bus.sites.site import free_port

PATIENCE_S = 60
END_WITH_PARENT = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
"""The kernel ends the service when the process that started it is gone, also by kill -9."""


def _data(folder: Path) -> Path:
    return folder / "data"


def _broker(folder: Path, port: int) -> list[str]:
    return [sys.executable, "-m", "slipstream", "serve", "--port", str(port), "--data", str(_data(folder))]


def _nats(folder: Path, port: int) -> list[str]:
    binary = Path(sys.executable).parent / "nats-server"
    return [str(binary), "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(_data(folder))]


def _pubsub(_folder: Path, port: int) -> list[str]:
    return [str(server()), str(port)]


COMMANDS: dict[str, tuple[Callable[[Path, int], list[str]], str]] = {
    "broker": (_broker, "listening on"),
    "nats": (_nats, "Server is ready"),
    "pubsub": (_pubsub, "listening"),
}
"""For each service its command, and what its log says once it listens."""


class RunServices:
    """The services of one run. The process that made the folder starts them; all that know the folder find them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []

    def start_all(self) -> None:
        """Start all services and do not wait for them; do nothing the second time."""
        for name in COMMANDS:
            if not (self.folder / name).exists():
                self._start(name)

    def _start(self, name: str) -> None:
        command, _ = COMMANDS[name]
        folder = self.folder / name
        folder.mkdir()
        port = free_port()
        try:
            words = command(folder, port)
        except Missing as missing:
            (folder / "missing").write_text(str(missing))
            return
        kept = {key: value for key, value in os.environ.items() if not key.startswith("SLIPSTREAM_")}
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [*END_WITH_PARENT, *words],
                stdin=subprocess.PIPE,  # the Pub/Sub server ends when it is closed
                stdout=log,
                stderr=log,
                env=kept,
                start_new_session=True,
            )
        (folder / "port").write_text(str(port))
        self._processes.append(process)

    def port(self, name: str) -> int:
        """Return the port of a service once it listens; start it where nothing has. Raise `Missing` where it cannot
        be had."""
        folder = self.folder / name
        if not folder.exists():
            self._start(name)
        _, said = COMMANDS[name]
        deadline = time.monotonic() + PATIENCE_S
        while True:
            with contextlib.suppress(FileNotFoundError):
                raise Missing((folder / "missing").read_text())
            with contextlib.suppress(FileNotFoundError):
                log = (folder / "log").read_text(errors="replace")
                if said in log:
                    return int((folder / "port").read_text())
                assert time.monotonic() < deadline, f"the {name} of this run does not listen:\n{log}"
            time.sleep(0.01)

    def data(self, name: str) -> Path:
        """Return the directory in which a service keeps its data."""
        return _data(self.folder / name)

    def build_once(self, name: str) -> None:
        """Raise when another process of the run has built this heavy fixture: its tests belong on one worker."""
        try:
            (self.folder / f"built-{name}").touch(exist_ok=False)
        except FileExistsError:
            raise AssertionError(
                f"the fixture {name} is built twice in one run; run with --dist loadscope, which keeps its tests on"
                " one worker (tests/scheduling.py)"
            ) from None

    def stop(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
            assert process.stdin is not None
            process.stdin.close()
        self._processes.clear()
