"""What slips count, for Prometheus. What is in the hands of a step is `messages_inflight` of the bus: its group is
`step-<id>`."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from slipstream.metric_sets import MetricSets

DURATION_MS = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 300_000)


class SlipMetrics:
    """One set a registry, which all routers and workers of a process share."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.duration_ms = Histogram(
            "step_duration_ms", "Of an attempt at a step", ["step"], buckets=DURATION_MS, registry=registry
        )
        self.attempts = Counter("step_attempts", "Attempts at a step that have begun", ["step"], registry=registry)
        self.errors = Counter("step_errors", "Attempts at a step that failed", ["step", "code"], registry=registry)
        self.slips = Counter(
            "slips",
            "Messages by what became of them: planned, completed, dead_lettered, late",
            ["event"],
            registry=registry,
        )
        self.topics_unserved = Gauge(
            "step_topic_unserved",
            "1 while messages of a step are sent to a topic that has never had a consumer group",
            ["topic", "step"],
            registry=registry,
        )
        self.routes_refused = Gauge(
            "route_table_refused",
            "1 while the newest route table is wrong, and an older one is used",
            registry=registry,
        )


metrics_in = MetricSets(SlipMetrics)
