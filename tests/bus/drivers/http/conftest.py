"""A server for tests that leave it alone, and one for those that kill it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bus.sites.http import HttpSite


@pytest.fixture(scope="session")
def shared_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpSite]:
    site = HttpSite(tmp_path_factory.mktemp("http"))
    yield site
    site.close()


@pytest.fixture
def own_site(tmp_path: Path) -> Iterator[HttpSite]:
    site = HttpSite(tmp_path)
    yield site
    site.close()
