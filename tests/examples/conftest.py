"""The engines that the examples run on are those of the suite of the bus."""

from __future__ import annotations

from tests.bus.conftest import site

__all__ = ["site"]
