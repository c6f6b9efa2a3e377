"""A server for tests that leave it alone, and one for those that kill it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.bus.sites.http import HttpSite
from tests.run_services import RunServices


@pytest.fixture(scope="session")
def shared_site(services: RunServices) -> Iterator[HttpSite]:
    site = HttpSite.attached(services.port("broker"))
    yield site
    site.close()


@pytest.fixture
def own_site() -> Iterator[HttpSite]:
    site = HttpSite()
    yield site
    site.close()
