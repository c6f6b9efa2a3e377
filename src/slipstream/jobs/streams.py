"""The streams: what they are called, how many partitions they have, and how long they keep what."""

from __future__ import annotations

import msgspec

from slipstream.bus import InvalidArgument
from slipstream.bus.names import check_name
from slipstream.jobs.errors import InvalidJobs

DAY_MS = 24 * 3600 * 1000
GB = 1_000_000_000

WORKERS = "workers"
LEDGER_GROUP = "ledger"
"""The consumer groups of workers and of the service. `operators` is left to services of operators."""


class Stream(msgspec.Struct, frozen=True):
    """A topic of the bus. Its messages have their job's id as key, so that those of a job stay together."""

    topic: str
    partitions: int
    retention_ms: int
    retention_bytes: int = 0
    """Of the stream as a whole, whatever its partitions; 0: no limit."""
    group: str = ""
    """Who consumes it, in a group that is to see what was published before it began."""


class Streams(msgspec.Struct, frozen=True):
    tasks: Stream
    status: Stream
    logs: Stream
    dlq: Stream
    control: Stream

    def all(self) -> tuple[Stream, ...]:
        return (self.tasks, self.status, self.logs, self.dlq, self.control)


def streams(namespace: str) -> Streams:
    """Raises InvalidJobs for a namespace that no topic could start with.

    Example:
        streams("fetchbox").tasks.topic  # fetchbox.jobs.tasks
    """
    try:
        check_name("JOBS_NAMESPACE", namespace)
    except InvalidArgument as error:
        raise InvalidJobs(str(error)) from error
    return Streams(
        tasks=Stream(f"{namespace}.jobs.tasks", 8, 7 * DAY_MS, 100 * GB, group=WORKERS),
        status=Stream(f"{namespace}.jobs.status", 4, 14 * DAY_MS, group=LEDGER_GROUP),
        logs=Stream(f"{namespace}.jobs.logs", 4, 30 * DAY_MS, group=LEDGER_GROUP),
        dlq=Stream(f"{namespace}.jobs.dlq", 2, 90 * DAY_MS),
        control=Stream(f"{namespace}.jobs.control", 1, 90 * DAY_MS),
    )
