"""What steps on Spark count: the same as others, as far as windows tell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry

from slipstream.bus.metrics import metrics_in as bus_metrics_in
from slipstream.slip.metrics import metrics_in

if TYPE_CHECKING:
    from slipstream.pipeline.steps.runner import Told
    from slipstream.pipeline.steps.step import SparkStep

ON_SPARK = "on_spark"
"""The code of all errors: a window tells only how many there were."""
ATTEMPTS = ("OK", "SKIP", "ERROR")
"""Kinds that a window counts; what was returned as it came was not tried."""


class Counting:
    """Told of each window that is committed, from the threads of the steps."""

    def __init__(self, steps: Sequence[SparkStep[Any, Any]], registry: CollectorRegistry | None = None) -> None:
        self._metrics = metrics_in(registry)
        lag = bus_metrics_in(registry).lag
        self._lag = {step.step_id: lag.labels("http", step.topic, step.group) for step in steps}

    def told(self, told: Told) -> None:
        attempts = sum(told.counts.get(kind, 0) for kind in ATTEMPTS)
        self._metrics.attempts.labels(told.step).inc(attempts)
        if errors := told.counts.get("ERROR", 0):
            self._metrics.errors.labels(told.step, ON_SPARK).inc(errors)
        self._lag[told.step].set(told.lag)
