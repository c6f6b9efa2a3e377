"""A bus with topics of its own for each test: on every engine, or in memory where the engine makes no difference."""

from __future__ import annotations

import itertools
import os

import pytest

from tests.bus.conftest import new_bus, registry, site

__all__ = ["new_bus", "registry", "site"]

_numbers = itertools.count()


@pytest.fixture
def prefix() -> str:
    return f"jobs-{os.getpid()}-{next(_numbers)}."
