"""A Slipstream server in a process of its own."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from tests.bus.sites.site import Site
from tests.server_process import ServerProcess


class HttpSite(Site):
    driver = "http"

    def __init__(self, *arguments: str) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="slipstream-http-"))
        self.server = ServerProcess(self._directory / "data", *arguments)
        self.server.start()

    def settings(self) -> dict[str, Any]:
        return {"driver": "http", "url": self.server.base}

    def environment(self) -> dict[str, str]:
        return {"MESSAGE_BUS_DRIVER": "http", "SLIPSTREAM_URL": self.server.base}

    def stop_server(self) -> None:
        self.server.crash()

    def start_server(self) -> None:
        self.server.start()

    def close(self) -> None:
        self.server.kill()
        shutil.rmtree(self._directory)
