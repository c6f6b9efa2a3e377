"""Consumer groups: how far they are, and moving them."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Literal

import msgspec

from slipstream.api.retry import RetryPolicyFields


class InFlight(msgspec.Struct, frozen=True):
    """A message that was delivered and is not finished."""

    partition: int
    offset: int
    owner: str
    attempts: int
    state: Literal["leased", "waiting", "ready"]
    """On lease to its owner; waiting for its next attempt; due for it."""
    until_ms: int
    """When the lease ends, or the next attempt is due."""
    last_error: str


class GroupPartition(msgspec.Struct, frozen=True):
    partition: int
    watermark: int
    """Everything up to this offset is finished; -1 at the start."""
    lag: int
    in_flight: int
    delayed: int
    """Not yet due (`deliver_at`)."""
    oldest_unfinished_ms: int | None
    """When the oldest message that is not finished was stored; absent where there is none."""
    unreadable: str = ""
    """Why the log cannot be read on here."""
    retrying: int = 0
    """Messages that failed and wait for their next attempt."""


class ConsumerInfo(msgspec.Struct, frozen=True):
    """A consumer of a group that is connected now."""

    owner: str
    kind: Literal["stream", "pull"]
    lease_ms: int
    held: int
    """Messages it has on lease."""
    window: int | None
    """Maximum number of messages a stream may hold; absent where the client or the broker sets none."""
    prefetch: bool
    """The client asked for this window; otherwise it follows the rate of its acks."""
    parked_ms: int | None
    """When the stream was parked, because it let leases run out and settled nothing; absent where it is not."""


class GroupInfo(msgspec.Struct, frozen=True):
    """`GET /v2/topics/{topic}/groups/{group}`"""

    topic: str
    group: str
    paused: bool
    consumers: int
    lag: int
    in_flight: int
    delayed: int
    oldest_unfinished_age_ms: int
    """How long the oldest unfinished message has been stored; 0 where there is none."""
    idle_ms: int
    """For how long nobody has used it; 0 while a stream is open or a fetch waits. A restart begins to count anew."""
    lost: int
    """Removed by retention before the group finished them."""
    partitions: list[GroupPartition]
    messages: list[InFlight] = []
    """What is in flight or waits for another attempt; only where one group is asked for, and the first thousand."""
    retrying: int = 0
    """Messages that failed and wait for their next attempt."""
    parked: int = 0
    """Streams that get no new messages, because they let leases run out and settled nothing."""
    readers: list[ConsumerInfo] = []
    """The consumers that are connected; only where one group is asked for, and the first thousand."""
    retry: RetryPolicyFields | None = None
    """The retry policy of the group; absent where the topic's holds."""


class GroupList(msgspec.Struct, frozen=True):
    groups: list[GroupInfo]


class GroupRetryRequest(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True, frozen=True):
    """`PUT /v2/topics/{topic}/groups/{group}/retry`: how often and when messages that fail in this group are retried.

    Fields that are left out are the topic's. A policy of the message itself, or of the handler, goes before it.
    """

    retry: RetryPolicyFields | None = None
    """null: the group has no policy of its own any more."""


class SeekRequest(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True, frozen=True):
    """`POST /v2/topics/{topic}/groups/{group}/seek`: exactly one of `to`, `offset`, `time`.

    The group goes on from there; what it held on lease is let go. A group that does not exist is created.
    """

    to: Literal["earliest", "latest"] | None = None
    offset: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """The first message to be delivered has this offset, or the next higher one there is."""
    time: Annotated[dt.datetime, msgspec.Meta(tz=True)] | None = None
    """The first message to be delivered was stored at this time or later."""
    partition: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """Only this one; otherwise all."""
