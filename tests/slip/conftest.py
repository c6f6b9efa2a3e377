"""A bus with topics of its own for each test: on every engine, or in memory where the engine makes no difference."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable

import pytest
from prometheus_client import CollectorRegistry

from slipstream.bus.opening import Opening, open_bus
from tests.bus.conftest import OpenBus, new_bus, registry, site

__all__ = ["new_bus", "registry", "site"]

_numbers = itertools.count()


@pytest.fixture
def prefix() -> str:
    return f"slips-{os.getpid()}-{next(_numbers)}."


@pytest.fixture
def any_bus(new_bus: OpenBus, prefix: str) -> Callable[[], Opening]:
    """On every engine."""
    return lambda: new_bus(prefix=prefix)


@pytest.fixture
def memory_bus(registry: CollectorRegistry) -> Callable[[], Opening]:
    return lambda: open_bus(driver="memory", registry=registry)
