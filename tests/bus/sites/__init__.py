"""A site is an engine that really runs, for the behaviour suite: one module a driver, all with the same skeleton."""

from __future__ import annotations

from tests.bus.sites.site import Site


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
