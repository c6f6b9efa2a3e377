"""A broker in memory for each test, and a client of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from slipstream.client import Client
from slipstream.testing import MemoryBroker


@pytest.fixture
def broker() -> Iterator[MemoryBroker]:
    with MemoryBroker() as broker:
        yield broker


@pytest.fixture
def client(broker: MemoryBroker) -> Iterator[Client]:
    with broker.client() as client:
        yield client
