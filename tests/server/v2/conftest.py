"""A topic on the shared server, or on one that is killed, with the calls of `/v2`."""

from __future__ import annotations

import pytest

from tests.server.conftest import MemoryServer
from tests.server.v2.wire import V2
from tests.server_process import ServerProcess


@pytest.fixture
def v2(shared: ServerProcess, topic: str) -> V2:
    return V2(shared, topic)


@pytest.fixture
def on_disk(durable: ServerProcess, kept: str) -> V2:
    """A topic on the server of this module that its tests kill and start again."""
    return V2(durable, kept)


@pytest.fixture
def in_memory(memory: MemoryServer) -> V2:
    """A topic on a server of this test alone, with nothing on disk."""
    memory.create("t")
    return V2(memory, "t")
