"""Pulling messages and saying what became of them."""

from __future__ import annotations

from typing import Annotated, Generic

import msgspec

from slipstream.api.produce import Encoding, PayloadT
from slipstream.api.retry import RetryPolicyFields
from slipstream.broker.envelope import Envelope, Routing

Natural = Annotated[int, msgspec.Meta(ge=0)]
Position = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
"""Of a partition or a message; larger numbers have no form in MessagePack, and an answer may have to repeat it."""


class FetchRequest(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True, frozen=True):
    """`POST /v2/fetch`: up to `max_messages` or about `max_bytes`, at least one if there is one.

    Answers at once if there is something, or waits up to `wait_ms` for it.
    """

    topic: str
    group: str
    owner: str
    max_messages: Annotated[int, msgspec.Meta(ge=1)] = 100
    max_bytes: Annotated[int, msgspec.Meta(ge=1)] = 1 << 20
    wait_ms: Natural = 0
    lease_ms: Natural = 0
    """0: what the server is set to."""
    retry: RetryPolicyFields | None = None
    """How failures of what this fetch gets are retried, where a message has no policy of its own. Fields left out are
    the group's or the topic's."""


class FetchedMessage(msgspec.Struct, Generic[PayloadT], frozen=True, omit_defaults=True, kw_only=True):
    """A message on lease to the owner who fetched it."""

    partition: int
    offset: int
    timestamp_ms: int
    """When it was stored."""
    attempts: int
    """1 the first time."""
    key: PayloadT
    value: PayloadT
    encoding: Encoding | None = None
    key_encoding: Encoding | None = None
    last_error: str = ""
    attributes: dict[str, str] | None = None
    envelope: Envelope | None = None
    routing: Routing | None = None
    redriven_from: str = ""
    """`dlq.<topic>/<partition>/<offset>` of the dead letter it was."""


class FetchResponse(msgspec.Struct, Generic[PayloadT], frozen=True):
    messages: list[FetchedMessage[PayloadT]]


class Place(msgspec.Struct, forbid_unknown_fields=True, frozen=True, gc=False):
    partition: Position
    offset: Position


class Failure(msgspec.Struct, frozen=True):
    """Why this one of the messages could not be settled; the others were."""

    partition: int
    offset: int
    error: str
    message: str


class AckRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """`POST /v2/ack`: these are done. Each stands for itself; saying it again is fine."""

    topic: str
    group: str
    owner: str
    messages: list[Place]


class AckResponse(msgspec.Struct, frozen=True):
    acked: int
    failed: list[Failure]


class NackItem(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, frozen=True, kw_only=True):
    partition: Position
    offset: Position
    reason: str = ""
    delay_ms: Natural | None = None
    """When the next attempt is due; absent: as the retry policy says."""
    retryable: bool = True
    """false: straight to the dead letters."""
    traceback: str = ""
    """Shown with the attempt; the first 2,000 and the last 6,000 characters are kept."""
    counted: bool = True
    """false: the message was not attempted. The next delivery has the same attempt number, and no limit of attempts
    applies to this one."""


class NackRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """`POST /v2/nack`: these attempts failed."""

    topic: str
    group: str
    owner: str
    messages: list[NackItem]


class NackResponse(msgspec.Struct, frozen=True):
    nacked: int
    failed: list[Failure]


class ExtendRequest(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True, frozen=True):
    """`POST /v2/extend`: the owner needs more time for these."""

    topic: str
    group: str
    owner: str
    messages: list[Place]
    lease_ms: Natural = 0
    """From now; 0: what the server is set to."""


class ExtendResponse(msgspec.Struct, frozen=True):
    extended: int
    lease_until_ms: int
    failed: list[Failure]
