"""A site is an engine that really runs, for the behaviour suite: one module a driver, all with the same skeleton."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.bus.sites.pubsub_server.build import Missing
from tests.bus.sites.site import Site

if TYPE_CHECKING:
    from tests.run_services import RunServices


def make_site(driver: str) -> Site:
    """Starts one; whoever asks closes it."""
    match driver:
        case "embedded":
            from tests.bus.sites.embedded import EmbeddedSite

            return EmbeddedSite()
        case "http":
            from tests.bus.sites.http import HttpSite

            return HttpSite()
        case "nats":
            from tests.bus.sites.nats import NatsSite

            return NatsSite()
        case "pubsub":
            from tests.bus.sites.pubsub import PubSubSite

            return PubSubSite()
    raise AssertionError(f"no site for {driver}")


def shared_site(driver: str, services: RunServices) -> Site:
    """Return the site of the server that the run shares: for tests that keep to topics of their own."""
    match driver:
        case "http":
            from tests.bus.sites.http import HttpSite

            return HttpSite.attached(services.port("broker"), services.data("broker"))
        case "nats":
            from tests.bus.sites.nats import NatsSite

            return NatsSite.attached(services.port("nats"))
        case "pubsub":
            from tests.bus.sites.pubsub import PubSubSite

            try:
                return PubSubSite.attached(services.port("pubsub"))
            except Missing as missing:
                pytest.skip(str(missing))
    return make_site(driver)
