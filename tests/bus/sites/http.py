"""A Slipstream server in a process of its own."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any, Self

from slipstream.bus.drivers.http import source
from tests.bus.sites.site import Site
from tests.server_process import ServerProcess

WAIT_MS = 100
"""Subscribers of this process ask again so often, and close as soon: one that has nothing to do waits that long."""


class HttpSite(Site):
    driver = "http"

    def __init__(self, *arguments: str) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="slipstream-http-"))
        self._use(ServerProcess(self._directory / "data", *arguments))
        self.server.start()

    @classmethod
    def attached(cls, port: int, data: Path) -> Self:
        """Return the site of a server that another process started and ends."""
        site = cls.__new__(cls)
        site._use(ServerProcess.attached(port, data))
        return site

    def _use(self, server: ServerProcess) -> None:
        source.WAIT_MS = WAIT_MS
        self.server = server

    def settings(self) -> dict[str, Any]:
        return {"driver": "http", "url": self.server.base}

    def environment(self) -> dict[str, str]:
        return {"MESSAGE_BUS_DRIVER": "http", "SLIPSTREAM_URL": self.server.base}

    def stop_server(self) -> None:
        self.server.crash()

    def start_server(self) -> None:
        self.server.start()

    def ensure_started(self) -> None:
        process = self.server.process
        if process is None or process.poll() is not None:
            self.server.start()

    def close(self) -> None:
        if self.server.process is None:
            self.server.client.close()
            return
        self.server.kill()
        shutil.rmtree(self._directory)
