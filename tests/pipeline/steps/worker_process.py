"""`slipstream slip worker --engine spark` in a process of its own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.program import Program


class SparkWorker(Program):
    def __init__(self, url: str, folder: Path, prefix: str, *arguments: str, **environment: str) -> None:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PIPELINE_", "SLIP"))}
        ours = {
            "MESSAGE_BUS_DRIVER": "http",
            "SLIPSTREAM_URL": url,
            "BUS_PREFIX": prefix,
            "PIPELINE_TABLES": str(folder / "tables"),
            "SLIP_STORE": str(folder / "slips.db"),
            "NO_COLOR": "1",
        }
        command = [sys.executable, "-m", "slipstream", "slip", "worker", "--engine", "spark", *arguments]
        super().__init__(command, {**inherited, **ours, **environment})
