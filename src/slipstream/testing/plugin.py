"""Fixtures for pytest, which finds them by itself where Slipstream is installed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from slipstream.testing.broker import MemoryBroker


@pytest.fixture
def slipstream_broker() -> Iterator[MemoryBroker]:
    """A broker in memory, empty, whose clock the test moves."""
    from slipstream.testing.broker import MemoryBroker  # noqa: PLC0415 - not for every run of pytest

    with MemoryBroker() as broker:
        yield broker
