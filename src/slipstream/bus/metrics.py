"""What a bus counts, for Prometheus. All of it has a `driver` label."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from slipstream.metric_sets import MetricSets

LATENCY_MS = (0.25, 0.5, 1, 2, 5, 10, 20, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000)


class BusMetrics:
    """One set a registry, which all buses of a process share: what tells them apart is labels."""

    def __init__(self, registry: CollectorRegistry) -> None:
        group = ["driver", "topic", "group"]
        self.messages = Counter(
            "messages",
            "Messages by what became of them: published, refused, received, acked, nacked, dead_lettered",
            ["driver", "topic", "event"],
            registry=registry,
        )
        self.publish_latency_ms = Histogram(
            "publish_latency_ms",
            "From publish until the engine has the message safely",
            ["driver", "topic"],
            buckets=LATENCY_MS,
            registry=registry,
        )
        self.in_flight = Gauge("messages_inflight", "In the hands of handlers here", group, registry=registry)
        self.lag = Gauge(
            "consumer_lag", "Messages the group has not finished, as the engine last said", group, registry=registry
        )
        self.redeliveries = Counter("redeliveries", "Received for at least the second time", group, registry=registry)
        self.dead_letters = Counter(
            "dead_letters", "Published to the dead-letter topic", [*group, "reason"], registry=registry
        )


metrics_in = MetricSets(BusMetrics)
