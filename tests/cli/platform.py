"""The whole platform, started by `slipstream up` on ports that are free."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from slipstream.up import PartsFile, PartStatus, board
from slipstream.up.lock import is_alive
from tests.program import PATIENCE_S, Program

PORTS = tuple(
    word
    for name in ("port", "jobs-port", "console-port", "slips-port", "downloads-port", "pipeline-port", "nats-port")
    for word in (f"--{name}", "0")
)

OURS = ("SLIPSTREAM_", "SLIP_", "JOBS_", "PIPELINE_", "UP_", "HEALTH_", "CONSOLE_", "MESSAGE_BUS", "BUS_", "NATS_")


def plain_environment(**more: str) -> dict[str, str]:
    """What a user has who has set nothing."""
    return {name: value for name, value in os.environ.items() if not name.startswith(OURS)} | more


class Platform(Program):
    """A `slipstream up`."""

    def __init__(self, data: Path, *options: str, **environment: str) -> None:
        self.data = data
        # A part that a busy machine lets end slowly is no part that has to be killed.
        more = {"UP_STOP_TIMEOUT_MS": "100000"} | environment
        super().__init__(self.command("up", "--data", str(data), *PORTS, *options), self.environment(**more))

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "slipstream", *arguments]

    def environment(self, **more: str) -> dict[str, str]:
        return plain_environment(**more)

    def file(self) -> PartsFile:
        found = board.read(self.data / "up" / "parts.json")
        assert found is not None, self.said
        return found

    def part(self, name: str) -> PartStatus:
        return next(part for part in self.file().parts if part.name == name)

    def until(self, name: str, state: str, restarts: int = 0) -> PartStatus:
        """As `parts.json` says."""
        until = time.monotonic() + PATIENCE_S
        while True:
            part = self.part(name)
            if part.state == state and part.restarts >= restarts:
                return part
            assert time.monotonic() < until, f"{part}\n{self.said}"
            time.sleep(0.05)

    def interrupt(self) -> int:
        """As Ctrl-C does; returns the exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.wait()

    def is_gone(self, parts: PartsFile) -> bool:
        """Neither a process nor anybody at a port is left."""
        return not any(is_alive(part.pid) for part in parts.parts if part.pid) and not any(
            _is_listened_at(part.url) for part in parts.parts
        )

    def until_gone(self, parts: PartsFile) -> None:
        until = time.monotonic() + PATIENCE_S
        while not self.is_gone(parts):
            assert time.monotonic() < until, [part for part in parts.parts if part.pid and is_alive(part.pid)]
            time.sleep(0.05)

    def end(self) -> None:
        """Whatever has become of the test."""
        if self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(Exception):
                self.wait()
        self.kill()


def _is_listened_at(url: str) -> bool:
    host, _, port = url.rpartition("//")[2].partition(":")
    with contextlib.suppress(OSError), socket.create_connection((host, int(port)), 1):
        return True
    return False


@contextlib.contextmanager
def platform(data: Path, *options: str, **environment: str) -> Iterator[Platform]:
    """Started; ended with the test."""
    found = Platform(data, *options, **environment)
    try:
        yield found
    finally:
        found.end()
