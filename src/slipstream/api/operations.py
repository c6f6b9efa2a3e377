"""What an operator does with single messages of a group."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from slipstream.api.consume import Failure, Natural, Place
from slipstream.api.dead_letters import AttemptInfo


class MessageState(msgspec.Struct, frozen=True, kw_only=True):
    """`GET /v2/topics/{topic}/groups/{group}/messages/{partition}/{offset}`: a message the group has not finished."""

    topic: str
    group: str
    partition: int
    offset: int
    state: Literal["undelivered", "delayed", "leased", "waiting", "ready"]
    """Not delivered yet; not due yet; with its owner; waiting for its next attempt; due for it."""
    attempts: int
    owner: str
    """The owner of the lease, or the last one."""
    until_ms: int | None
    """When the lease ends, or the next attempt is due."""
    history: list[AttemptInfo]
    """The attempts that failed, oldest first."""


class MessagesRequest(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`POST …/messages/retry`, `discard` and `release`: each message stands for itself."""

    messages: list[Place]


class RejectRequest(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, frozen=True):
    """`POST …/messages/reject`"""

    messages: list[Place]
    reason: str = ""
    """Shown with the dead letter."""


class ExtendLeasesRequest(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, frozen=True):
    """`POST …/messages/extend`"""

    messages: list[Place]
    lease_ms: Natural = 0
    """From now; 0: what the server is set to."""


class OperationResponse(msgspec.Struct, frozen=True):
    done: int
    failed: list[Failure]
    """The messages it could not be done to, and why."""


class ReleaseOwnerRequest(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, frozen=True):
    """`POST /v2/owners/{owner}/release`: end every lease of an owner."""

    topic: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    """Only leases of this topic."""
    group: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    """Only leases of this group of the topic."""


class ReleasedLeases(msgspec.Struct, frozen=True):
    topic: str
    group: str
    released: int


class ReleaseOwnerResponse(msgspec.Struct, frozen=True):
    owner: str
    released: int
    groups: list[ReleasedLeases]
