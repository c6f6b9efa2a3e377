"""NATS for these tests, which keep to topics of their own: what holds on every engine is tested in `tests/bus`."""

from __future__ import annotations

import pytest

from tests.bus.sites.nats import NatsSite
from tests.run_services import RunServices


@pytest.fixture(scope="session")
def nats(services: RunServices) -> NatsSite:
    """The server that the whole run shares."""
    return NatsSite.attached(services.port("nats"))
