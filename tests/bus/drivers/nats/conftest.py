"""NATS for these tests, which keep to topics of their own: what holds on every engine is tested in `tests/bus`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.bus.sites.nats import NatsSite


@pytest.fixture(scope="session")
def nats() -> Iterator[NatsSite]:
    site = NatsSite()
    yield site
    site.close()
