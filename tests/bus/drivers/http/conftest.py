"""A server for tests that leave it alone, and one for those that stop it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.bus.sites.http import HttpSite
from tests.run_services import RunServices


@pytest.fixture(scope="session")
def shared_site(services: RunServices) -> Iterator[HttpSite]:
    site = HttpSite.attached(services.port("broker"), services.data("broker"))
    yield site
    site.close()


@pytest.fixture(scope="session")
def stopped_now_and_then() -> Iterator[HttpSite]:
    site = HttpSite()
    yield site
    site.close()


@pytest.fixture
def own_site(stopped_now_and_then: HttpSite) -> HttpSite:
    """A server that the test may stop and start, with topics of other tests on it."""
    stopped_now_and_then.ensure_started()
    return stopped_now_and_then
