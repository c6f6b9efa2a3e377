"""A server for tests that leave it alone, and one for those that kill it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.bus.sites.http import HttpSite


@pytest.fixture(scope="session")
def shared_site() -> Iterator[HttpSite]:
    site = HttpSite()
    yield site
    site.close()


@pytest.fixture
def own_site() -> Iterator[HttpSite]:
    site = HttpSite()
    yield site
    site.close()
