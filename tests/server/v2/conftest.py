"""A topic on the shared server, with the calls of `/v2`."""

from __future__ import annotations

import pytest

from tests.server.v2.wire import V2
from tests.server_process import ServerProcess


@pytest.fixture
def v2(shared: ServerProcess, topic: str) -> V2:
    return V2(shared, topic)
