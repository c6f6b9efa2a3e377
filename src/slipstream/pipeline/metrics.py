"""What the pipeline counts, for Prometheus."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from slipstream.metric_sets import MetricSets
from slipstream.pipeline.watch import Watch

if TYPE_CHECKING:
    from slipstream.pipeline.queries import Query
    from slipstream.pipeline.stream import Told

SECONDS = (0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 900)


class PipelineMetrics:
    """One set a registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        of_a_table = ["query", "table"]
        self.rows = Counter("pipeline_rows", "Rows written or changed", of_a_table, registry=registry)
        self.batches = Counter("pipeline_batches", "Batches that have changed the table", of_a_table, registry=registry)
        self.batch_seconds = Histogram(
            "pipeline_batch_seconds",
            "From taking a batch until it is in all of its tables",
            ["query"],
            buckets=SECONDS,
            registry=registry,
        )
        self.lag = Gauge(
            "pipeline_lag_messages",
            "Messages that are there and not read, at the last batch",
            ["query"],
            registry=registry,
        )
        self.last_batch = Gauge(
            "pipeline_last_batch_timestamp_seconds",
            "When the last batch was in its tables",
            ["query"],
            registry=registry,
        )
        self.freshness = Gauge(
            "pipeline_table_freshness_seconds",
            "How old what the table shows may be: since its query's last batch, or 0 while that has read all there is",
            ["table"],
            registry=registry,
        )
        self.failed = Counter(
            "pipeline_failed_queries", "Queries that stopped though nobody had asked", ["query"], registry=registry
        )


class Counting(Watch):
    """Counts what it is told of."""

    def __init__(self, registry: CollectorRegistry | None = None, clock: Callable[[], float] = time.time) -> None:
        self._metrics = metrics_in(registry)
        self._clock = clock
        self._lag: dict[str, int] = {}
        self._batch_at: dict[str, float] = {}

    def began(self, queries: Sequence[Query]) -> None:
        """All of them are there from the beginning, with 0: an alert can ask for what has never happened."""
        metrics, now = self._metrics, self._clock()
        for query in queries:
            self._batch_at.setdefault(query.name, now)
            metrics.batch_seconds.labels(query.name)
            metrics.failed.labels(query.name)
            for table in query.tables:
                metrics.rows.labels(query.name, table.name)
                metrics.batches.labels(query.name, table.name)
                metrics.freshness.labels(table.name).set_function(functools.partial(self._age_s, query.name))

    def told(self, told: Told) -> None:
        metrics = self._metrics
        metrics.batch_seconds.labels(told.query).observe(told.took_s)
        metrics.last_batch.labels(told.query).set(told.at.timestamp())
        self._batch_at[told.query] = told.at.timestamp()
        for table, rows in told.rows.items():
            if rows:
                metrics.rows.labels(told.query, table).inc(rows)
                metrics.batches.labels(told.query, table).inc()

    def behind(self, query: str, read: int, lag: int) -> None:
        self._lag[query] = lag
        self._metrics.lag.labels(query).set(lag)

    def failed(self, query: str) -> None:
        self._metrics.failed.labels(query).inc()

    def _age_s(self, query: str) -> float:
        """Before anything is known of what is there, nothing is known to be read."""
        return 0.0 if self._lag.get(query) == 0 else max(0.0, self._clock() - self._batch_at[query])


metrics_in = MetricSets(PipelineMetrics)
