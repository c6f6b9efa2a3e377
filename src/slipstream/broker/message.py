"""A message that a client sent, before it has a place."""

from __future__ import annotations

import msgspec

from slipstream.broker.envelope import Envelope, RoutingDecision


class NewMessage(msgspec.Struct, frozen=True, gc=False):
    """One of a batch."""

    key: bytes
    value: bytes
    envelope: Envelope | None = None
    attributes: dict[str, str] | None = None
    deliver_at_ms: int | None = None
    decision: RoutingDecision | None = None
