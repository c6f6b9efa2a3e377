"""What a worker counts. What is in its hands is `messages_inflight` of the bus: its group is `workers`."""

from __future__ import annotations

import weakref

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram

SECONDS = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 1800)


class JobMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.tasks = Counter(
            "jobs_tasks", "Tasks that came to an end: stored, failed.", ["outcome", "code"], registry=registry
        )
        self.retries = Counter(
            "jobs_retries", "Attempts that failed, with another to come.", ["code"], registry=registry
        )
        self.bytes = Counter("jobs_stored_bytes", "Bytes of the resources that were stored.", registry=registry)
        self.seconds = Histogram(
            "jobs_task_seconds", "From taking a task to its end.", buckets=SECONDS, registry=registry
        )
        self.stored = self.tasks.labels("stored", "")


_by_registry: weakref.WeakKeyDictionary[CollectorRegistry, JobMetrics] = weakref.WeakKeyDictionary()


def metrics_in(registry: CollectorRegistry | None) -> JobMetrics:
    """Those of a registry are made once, however many workers count in it. None is Prometheus' usual one."""
    registry = registry or REGISTRY
    found = _by_registry.get(registry)
    if found is None:
        found = _by_registry[registry] = JobMetrics(registry)
    return found
