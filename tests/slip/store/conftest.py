"""The stores that the suite runs on: each test that asks for `url` runs once on every one of them."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(params=["sqlite", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store that is empty."""
    return ":memory:" if request.param == "memory" else _shared_url(request.param, tmp_path)


@pytest.fixture(params=["sqlite"])
def shared_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """One that several may open at once, and that is there when it is opened again."""
    return _shared_url(request.param, tmp_path)


def _shared_url(name: str, tmp_path: Path) -> str:
    assert name == "sqlite"
    return str(tmp_path / "slips.db")
