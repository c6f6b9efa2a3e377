"""Metrics of a room, made once a registry, however many count in it."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Generic, TypeVar

from prometheus_client import REGISTRY, CollectorRegistry

M = TypeVar("M")


class MetricSets(Generic[M]):
    """
    Example:
        metrics_in = MetricSets(SlipMetrics)
        metrics_in(registry).steps.inc()
    """

    def __init__(self, make: Callable[[CollectorRegistry], M]) -> None:
        self._make = make
        self._made: weakref.WeakKeyDictionary[CollectorRegistry, M] = weakref.WeakKeyDictionary()

    def __call__(self, registry: CollectorRegistry | None) -> M:
        """None is Prometheus' usual one."""
        registry = REGISTRY if registry is None else registry
        found = self._made.get(registry)
        if found is None:
            found = self._made[registry] = self._make(registry)
        return found
