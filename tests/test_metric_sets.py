"""One set of metrics a registry."""

from __future__ import annotations

import gc
import weakref

from prometheus_client import REGISTRY, CollectorRegistry, Counter

from slipstream.metric_sets import MetricSets


class Sold:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = weakref.ref(registry)
        self.books = Counter("books_sold_in_a_test", "So many.", registry=registry)


def test_whoever_asks_for_those_of_a_registry_gets_the_same() -> None:
    metrics_in = MetricSets(Sold)
    one, other = CollectorRegistry(), CollectorRegistry()
    assert metrics_in(one) is metrics_in(one)
    assert metrics_in(one) is not metrics_in(other)


def test_none_is_the_usual_registry() -> None:
    metrics_in = MetricSets(Sold)
    try:
        assert metrics_in(None) is metrics_in(REGISTRY)
    finally:
        REGISTRY.unregister(metrics_in(None).books)


def test_what_counts_in_a_registry_that_is_gone_is_gone_as_well() -> None:
    metrics_in = MetricSets(Sold)
    registry = CollectorRegistry()
    gone = weakref.ref(metrics_in(registry))
    del registry
    gc.collect()
    assert gone() is None
