"""The broker inside the application. Its server is the process itself: to stop it is to end the bus without a word."""

from __future__ import annotations

import shutil
import tempfile
from typing import Any

from tests.bus.sites.site import Site


class EmbeddedSite(Site):
    driver = "embedded"
    is_server = False

    def __init__(self) -> None:
        self._directory = tempfile.mkdtemp(prefix="slipstream-bus-")

    def settings(self) -> dict[str, Any]:
        return {"driver": "embedded", "data": self._directory}

    def environment(self) -> dict[str, str]:
        return {"MESSAGE_BUS_DRIVER": "embedded", "SLIPSTREAM_DATA": self._directory}

    def stop_server(self) -> None:
        raise NotImplementedError("the process is the server: kill it")

    start_server = stop_server
    ensure_started = stop_server

    def close(self) -> None:
        shutil.rmtree(self._directory)
