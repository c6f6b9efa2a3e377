"""The engines that the suite runs on: each test that asks for `site` runs once on every one of them."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator

import pytest
from prometheus_client import CollectorRegistry

from slipstream.bus.opening import Opening, open_bus
from tests.bus.sites import make_site, shared_site
from tests.bus.sites.site import Site
from tests.run_services import RunServices

DRIVERS = ["embedded", "http", "nats", "pubsub"]

_numbers = itertools.count()

OpenBus = Callable[..., Opening]


@pytest.fixture(scope="session", params=DRIVERS)
def site(request: pytest.FixtureRequest, services: RunServices) -> Iterator[Site]:
    """An engine that the whole run shares; each test keeps to topics of its own."""
    made = shared_site(request.param, services)
    yield made
    made.close()


@pytest.fixture(params=[driver for driver in DRIVERS if driver != "embedded"])
def server_site(request: pytest.FixtureRequest) -> Iterator[Site]:
    """One for this test alone, which may stop it."""
    made = make_site(request.param)
    yield made
    made.close()


@pytest.fixture
def topic() -> str:
    """One that nobody else uses."""
    return f"internal.orders-{os.getpid()}-{next(_numbers)}.v1"


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def new_bus(site: Site, registry: CollectorRegistry) -> OpenBus:
    """A bus on the site: `async with new_bus() as bus`, with settings of its own if need be."""
    return lambda **given: open_bus(registry=registry, **{**site.settings(), **given})
