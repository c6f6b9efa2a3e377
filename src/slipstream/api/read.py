"""Reading the log without a group: nothing is leased and nobody's progress changes."""

from __future__ import annotations

from typing import Annotated, Generic

import msgspec

from slipstream.api.consume import Position
from slipstream.api.produce import Encoding, PayloadT, Time
from slipstream.broker.envelope import Envelope, Routing

Natural = Annotated[int, msgspec.Meta(ge=0)]


class ReadQuery(
    msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True, frozen=True, rename={"from_": "from"}
):
    """The parameters of `GET /v2/topics/{topic}/messages`."""

    partition: Natural | None = None
    """Needed where the topic has more than one."""
    from_: Position | None = None
    """The first offset; absent: the oldest there is."""
    to: Position | None = None
    """Before this offset; absent: all that is there now."""
    since: Time | None = None
    """Stored at this time or later."""
    until: Time | None = None
    """Stored before this time."""
    last: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """Of what the other parameters select, the newest so many."""
    limit: Annotated[int, msgspec.Meta(ge=1)] = 1_000
    max_bytes: Annotated[int, msgspec.Meta(ge=1)] = 4 << 20
    """Of keys and values, about; there is always at least one message if there is one."""
    wait_ms: Natural = 0
    """If there is nothing yet, wait this long for it."""


class LogMessage(msgspec.Struct, Generic[PayloadT], frozen=True, omit_defaults=True, kw_only=True):
    """A message as it lies in the log."""

    partition: int
    offset: int
    timestamp_ms: int
    key: PayloadT
    value: PayloadT
    encoding: Encoding | None = None
    key_encoding: Encoding | None = None
    attributes: dict[str, str] | None = None
    envelope: Envelope | None = None
    routing: Routing | None = None
    deliver_at_ms: int | None = None
    redriven_from: str = ""
    only_group: str = ""
    """The one group that gets it, of a dead letter that was sent back; absent: every group."""


class ReadResponse(msgspec.Struct, Generic[PayloadT], frozen=True, kw_only=True):
    """`GET /v2/topics/{topic}/messages`"""

    partition: int
    next_offset: int
    """Read on from here."""
    first_offset: int
    """The oldest that can still be read."""
    end_offset: int
    """Everything below it had been written when this was answered."""
    messages: list[LogMessage[PayloadT]]
