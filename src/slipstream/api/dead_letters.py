"""Dead letters: finding them and giving them another chance."""

from __future__ import annotations

import enum
from typing import Annotated, Generic

import msgspec

from slipstream.api.consume import Place
from slipstream.api.produce import Encoding, PayloadT, Time
from slipstream.broker.envelope import Envelope, Routing


class DeadLetterQuery(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True, frozen=True):
    """The parameters of `GET /v2/dead-letters`; all filters must match. Each partition oldest first."""

    topic: str | None = None
    """The topic they died in (or its dlq); absent: all."""
    group: str | None = None
    error: str | None = None
    """Part of the last error or of the reason, in any case."""
    since: Time | None = None
    until: Time | None = None
    redriven: bool | None = None
    """true: only those; false: only the others."""
    limit: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 100
    after: str | None = None
    """`next` of the answer before."""


class AttemptInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """One failed attempt at a message."""

    number: int
    """1 for the first. Of many attempts only the first and the newest are kept."""
    started_ms: int | None
    """When the message was delivered; null where that was not recorded."""
    ended_ms: int
    """When the attempt failed, or its lease ran out."""
    duration_ms: int | None
    worker: str
    """The owner of the lease."""
    error: str
    traceback: str = ""
    """As the worker sent it; only of the first attempt and the newest."""


class DeadLetterItem(msgspec.Struct, Generic[PayloadT], frozen=True, omit_defaults=True, kw_only=True):
    """A dead letter. Its place is in `topic`, the dlq; where it came from stands in `envelope.dlq`."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    redriven: bool
    """It was sent back, and will not be a second time."""
    key: PayloadT
    value: PayloadT
    envelope: Envelope
    """With `dlq`: original place, group, attempts, last_error, reason, time."""
    encoding: Encoding | None = None
    key_encoding: Encoding | None = None
    attributes: dict[str, str] | None = None
    routing: Routing | None = None
    history: list[AttemptInfo] = []
    """The attempts, oldest first; only where one dead letter is asked for."""


class DeadLetterList(msgspec.Struct, Generic[PayloadT], frozen=True, kw_only=True):
    """`GET /v2/dead-letters`"""

    dead_letters: list[DeadLetterItem[PayloadT]]
    next: str | None
    """Give it as `after` to see more; null at the end."""


class RedriveRequest(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True, frozen=True):
    """`POST /v2/redrives`: send dead letters of one topic back, or elsewhere. All filters must match.

    What was redriven before is passed over, so a repeat enqueues nothing twice.
    """

    topic: str
    """The topic whose dead letters these are (or its dlq)."""
    group: str | None = None
    error: str | None = None
    """Part of the last error or of the reason, in any case."""
    since: Time | None = None
    until: Time | None = None
    messages: list[Place] | None = None
    """Only these, by their place in the dlq."""
    to: str | None = None
    """Another topic; absent: the one each came from."""
    all_groups: bool = False
    """true: every group of the topic gets the messages; false: only the group that each failed for. In another topic
    (`to`) every group gets them."""
    rate: Annotated[float, msgspec.Meta(gt=0, le=1e9)] | None = None
    """Messages a second; absent: as fast as it goes."""
    limit: Annotated[int, msgspec.Meta(ge=1)] | None = None
    dry_run: bool = False
    """Only count: `redriven` is then how many would be sent."""


class RedriveState(enum.StrEnum):
    RUNNING = "running"
    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"


class RedriveStatus(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    state: RedriveState
    topic: str
    to: str | None
    dry_run: bool
    scanned: int
    matched: int
    redriven: int
    skipped: int
    """Matched, but redriven before."""
    started_ms: int
    ended_ms: int | None
    error: str = ""
    all_groups: bool = False
    without_group: int = 0
    """Matched and not sent, because the group they failed for is gone: `all_groups` or `to` sends them."""


class RedriveList(msgspec.Struct, frozen=True):
    redrives: list[RedriveStatus]
