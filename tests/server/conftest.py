"""Servers for tests that cannot use the shared one: in memory with flags of their own, or killed and started again."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from slipstream.testing import MemoryBroker
from tests.server_process import ServerProcess


class MemoryServer(ServerProcess):
    """A `MemoryBroker` with the calls of a server in a process: it starts at once, and the test moves its clock."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(Path())
        self.broker = MemoryBroker(**settings)

    def start(self) -> None:
        self.broker.__enter__()
        self.port = int(self.broker.url.rpartition(":")[2])

    def kill(self) -> None:
        self.client.close()
        self.broker.close()

    def advance(self, ms: int) -> None:
        self.broker.advance(ms)

    def soon(self, ms: int) -> str:
        """Return the time of the server's clock in so many milliseconds."""
        return (self.broker.now + dt.timedelta(milliseconds=ms)).isoformat()


StartMemory = Callable[..., MemoryServer]


@pytest.fixture
def start_memory() -> Iterator[StartMemory]:
    """Start servers in memory, with the settings of `serve` by name: `start_memory(max_in_flight=2)`."""
    servers: list[MemoryServer] = []

    def start(**settings: Any) -> MemoryServer:
        server = MemoryServer(**settings)
        server.start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.kill()


@pytest.fixture
def memory(start_memory: StartMemory) -> MemoryServer:
    return start_memory()


@pytest.fixture(scope="module")
def _durable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    server = ServerProcess(tmp_path_factory.mktemp("durable") / "data")
    yield server
    server.kill()


@pytest.fixture
def durable(_durable: ServerProcess) -> ServerProcess:
    """The server of this module that its tests kill and start again. Each keeps to topics of its own."""
    if _durable.process is None or _durable.process.poll() is not None:
        _durable.start()
    return _durable


_numbers = itertools.count()


@pytest.fixture
def kept(durable: ServerProcess) -> str:
    """A topic on the durable server that only this test uses."""
    name = f"kept-{next(_numbers)}"
    durable.create(name)
    return name
