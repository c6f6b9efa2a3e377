"""A server for the tests of the client that stop it: those that leave it alone ask for `shared`."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.server_process import ServerProcess


@pytest.fixture(scope="session")
def stopped_now_and_then(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    server = ServerProcess(tmp_path_factory.mktemp("stopped"))
    server.start()
    yield server
    server.kill()


@pytest.fixture
def server(stopped_now_and_then: ServerProcess) -> ServerProcess:
    """A server that the test may stop and start, with topics of other tests on it."""
    process = stopped_now_and_then.process
    if process is None or process.poll() is not None:
        stopped_now_and_then.start()
    return stopped_now_and_then


@pytest.fixture
def own_topic(server: ServerProcess) -> str:
    """A topic of this test alone, on the server that it may stop."""
    name = f"own-{uuid.uuid4().hex}"
    server.create(name)
    return name
