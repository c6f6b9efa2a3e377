"""A topic on the shared server, and the commands for it."""

from __future__ import annotations

import pytest

from tests.cli.commands import Commands
from tests.server_process import ServerProcess


@pytest.fixture
def cli(shared: ServerProcess, topic: str) -> Commands:
    return Commands(shared, topic)
