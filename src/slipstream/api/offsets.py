"""Where the logs of topics begin and end, for who keeps a place of its own in many of them."""

from __future__ import annotations

from typing import Annotated

import msgspec

from slipstream.api.consume import Position
from slipstream.api.produce import Time

Natural = Annotated[int, msgspec.Meta(ge=0)]


class OffsetsRequest(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True, frozen=True):
    """`POST /v2/offsets`"""

    topics: list[str] | None = None
    """Absent: all topics, dead letters too."""
    since: Time | None = None
    """Asks for the first offset that was stored at this time or later, too."""
    known: dict[str, list[Position]] | None = None
    """By topic, the end offset of each of its partitions as far as the caller knows. With `wait_ms` the answer waits
    until one of them, or the number of partitions or topics, is another."""
    wait_ms: Natural = 0
    """How long it waits at most; without `known` it does not."""


class PartitionOffsets(msgspec.Struct, frozen=True):
    partition: int
    first_offset: int
    """The oldest that can still be read."""
    end_offset: int
    """Everything below it has been written: read up to here and you have it all."""
    messages: int
    since_offset: int | None = None
    """The first that was stored at `since` or later; where there is none, `end_offset` as it was then."""


class TopicOffsets(msgspec.Struct, frozen=True):
    name: str
    incarnation: str
    """Differs for a topic that was deleted and created again; elsewhere it is the `id` of the topic."""
    partitions: list[PartitionOffsets]


class OffsetsResponse(msgspec.Struct, frozen=True):
    """`POST /v2/offsets`, by name."""

    topics: list[TopicOffsets]
    missing: list[str]
    """Of the names that were asked for, those that are no topic."""
