"""Dead letters of the bus, as the console lists and handles them."""

from __future__ import annotations

from typing import Annotated

import msgspec


class BusDeadLettersQuery(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The parameters of `GET /v2/bus-dead-letters`; all filters must match."""

    topic: str = ""
    """The topic they died in, or its dead-letter topic; absent: all."""
    group: str = ""
    error: str = ""
    """Part of the reason, in any case."""
    limit: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 100
    after: str = ""
    """Go on behind this place: the `next` of the answer before, such as `orders.DLQ/0/17`."""


class BusDeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A message that a subscriber of the bus has given up."""

    topic: str
    """The dead-letter topic."""
    partition: int
    offset: int
    origin: str
    """The topic it died in."""
    group: str
    reason: str
    attempts: int
    died_ms: int
    key: str
    value: str
    """The message as text. In a list it is cut to 2,000 characters."""
    attributes: dict[str, str]


class BusDeadLetterList(msgspec.Struct, frozen=True):
    dead_letters: list[BusDeadLetter]
    """The oldest of each topic and partition first."""
    next: str | None = None
    """For `after`: where the next page begins; absent on the last page."""


class BusRedriveRequest(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The topic that a dead letter is sent to."""

    to: str = ""
    """A topic; absent: the one it died in."""


class BusDeadLetterHandled(msgspec.Struct, frozen=True, kw_only=True):
    """How many dead letters were handled."""

    redriven: int = 0
    discarded: int = 0
