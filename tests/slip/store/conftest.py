"""The stores that the suite runs on: each test that asks for `url` runs once on every one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.slip.store.valkey import ValkeyServer

StartValkey = Callable[..., ValkeyServer]


@pytest.fixture(params=["sqlite", "memory", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store that is empty."""
    return ":memory:" if request.param == "memory" else _shared_url(request, tmp_path)


@pytest.fixture(params=["sqlite", "redis"])
def shared_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """One that several may open at once, and that is there when it is opened again."""
    return _shared_url(request, tmp_path)


def _shared_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "slips.db")
    server: ValkeyServer = request.getfixturevalue("valkey")
    server.flush()
    return server.url


@pytest.fixture(scope="session")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyServer]:
    """One for all tests of a process."""
    server = ValkeyServer(tmp_path_factory.mktemp("valkey"))
    server.start()
    yield server
    server.kill()


@pytest.fixture
def start_valkey(tmp_path: Path) -> Iterator[StartValkey]:
    """Starts servers for this test alone, which may kill them: `start_valkey("--requirepass", "secret")`."""
    servers: list[ValkeyServer] = []

    def start(*arguments: str) -> ValkeyServer:
        server = ValkeyServer(tmp_path, *arguments)
        server.start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.kill()
