"""What workers and the service count. What is in the hands of a worker is `messages_inflight` of the bus: its group is
`workers`."""

from __future__ import annotations

import functools
import math
import time
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from slipstream.jobs.errors import JobsError
from slipstream.metric_sets import MetricSets

if TYPE_CHECKING:
    from slipstream.jobs.ledger import Ledger

STATES = ("queued", "in_progress", "paused", "partial", "completed", "failed", "cancelled")
COUNTS_S = 1.0
"""So old the counts of the ledger may be."""
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


metrics_in = MetricSets(JobMetrics)


class ServiceMetrics:
    """Of the one process that takes jobs and counts them."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.submissions = Counter(
            "jobs_submissions",
            "Jobs that somebody submitted: accepted, refused.",
            ["outcome", "code"],
            registry=registry,
        )
        self.by_state = Gauge(
            "jobs_by_state",
            "Jobs in the ledger: queued, in_progress, partial, completed, failed.",
            ["state"],
            registry=registry,
        )
        self.accepted = self.submissions.labels("accepted", "")

    def count_in(self, ledger: Ledger) -> None:
        """From now on the states are those of this ledger, as it says when somebody asks."""
        counts = _Counts(ledger)
        for state in STATES:
            self.by_state.labels(state).set_function(functools.partial(counts.of, state))


class _Counts:
    """Read once for all states: of a million jobs that takes a moment."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._read_at = -COUNTS_S
        self._counts: dict[str, int] = {}

    def of(self, state: str) -> float:
        """Not a number where nobody can say."""
        if time.monotonic() - self._read_at >= COUNTS_S:
            try:
                self._counts = self._ledger.counts()
            except JobsError:
                return math.nan
            self._read_at = time.monotonic()
        return self._counts.get(state, 0)


service_metrics_in = MetricSets(ServiceMetrics)
