"""`GET /v2/events`: what is going on, once a second, as server-sent events named `stats`."""

from __future__ import annotations

import msgspec


class RetryingMessage(msgspec.Struct, frozen=True):
    """The message of a group that has failed most often, and is tried again."""

    partition: int
    offset: int
    attempts: int
    error: str
    """The error of the last attempt."""
    is_same_error: bool
    """All attempts that are known failed with this error."""


class GroupStats(msgspec.Struct, frozen=True):
    group: str
    lag: int
    in_flight: int
    delayed: int
    consumers: int
    paused: bool
    finished_per_s: float
    oldest_unfinished_age_ms: int
    retrying: int = 0
    """Messages that failed and wait for their next attempt."""
    parked: int = 0
    """Streams that get no new messages, because they let leases run out and settled nothing."""
    worst: RetryingMessage | None = None
    done: int = 0
    """Messages that are finished, or that retention has removed: it is the same for as long as the group finishes
    nothing."""
    parked_owner: str = ""
    """The owner of a parked stream; an empty text if none is parked."""


class TopicStats(msgspec.Struct, frozen=True):
    topic: str
    messages: int
    bytes: int
    produced_per_s: float
    dead_letters: int
    """Messages now in dlq.<topic> that were not redriven."""
    groups: list[GroupStats]


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    time_ms: int
    interval_ms: int
    produced_per_s: float
    delivered_per_s: float
    acked_per_s: float
    nacked_per_s: float
    dead_lettered_per_s: float
    lag: int
    """Of all groups together."""
    in_flight: int
    dead_letters: int
    oldest_unfinished_age_ms: int
    topics: list[TopicStats]
