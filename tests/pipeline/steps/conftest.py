"""A server for the tests of a process, and topics of its own for each of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.pipeline.steps.site import Site
from tests.server_process import ServerProcess

_numbers = itertools.count()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    process = ServerProcess(tmp_path_factory.mktemp("steps"))
    process.start()
    yield process
    process.kill()


@pytest.fixture
def site(server: ServerProcess) -> Iterator[Site]:
    found = Site(server.base, f"s{next(_numbers)}.")
    with found.client:
        yield found
