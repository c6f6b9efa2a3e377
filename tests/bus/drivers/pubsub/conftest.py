"""Pub/Sub for these tests: what is special to it. What holds on every engine is tested in `tests/bus`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry

from slipstream.bus.opening import Opening, open_bus
from tests.bus.conftest import OpenBus
from tests.bus.sites import shared_site
from tests.bus.sites.pubsub import PubSubSite
from tests.run_services import RunServices


@pytest.fixture(scope="session")
def pubsub(services: RunServices) -> PubSubSite:
    """The server that the whole run shares; each test keeps to topics of its own."""
    site = shared_site("pubsub", services)
    assert isinstance(site, PubSubSite)
    return site


@pytest.fixture
def own_pubsub() -> Iterator[PubSubSite]:
    """One for this test alone, which may stop it."""
    site = PubSubSite()
    yield site
    site.close()


@pytest.fixture
def new_bus(pubsub: PubSubSite) -> OpenBus:
    return opener(pubsub)


def opener(site: PubSubSite) -> OpenBus:
    def new(**given: object) -> Opening:
        return open_bus(registry=CollectorRegistry(), **{**site.settings(), **given})

    return new
