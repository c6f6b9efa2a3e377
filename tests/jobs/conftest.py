"""A bus with topics of its own for each test, on every engine."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable

import pytest

from slipstream.bus.opening import Opening
from tests.bus.conftest import OpenBus, new_bus, registry, site

__all__ = ["new_bus", "registry", "site"]

_numbers = itertools.count()


@pytest.fixture
def prefix() -> str:
    return f"jobs-{os.getpid()}-{next(_numbers)}."


@pytest.fixture
def any_bus(new_bus: OpenBus, prefix: str) -> Callable[[], Opening]:
    return lambda: new_bus(prefix=prefix)
