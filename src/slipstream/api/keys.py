"""Where a message went that was produced with an idempotency key."""

from __future__ import annotations

from typing import Literal

import msgspec


class KeyPlace(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    partition: int
    """Of a batch, that of its first message where it is known, else 0."""
    offset: int
    """Of a batch, of its first message; -1 while it is being stored."""
    tenant_id: str = ""
    status: Literal["pending", "committed", "failed"] = "committed"


class KeyPlaces(msgspec.Struct, frozen=True):
    """`GET /v2/idempotency-keys/{key}`: one for each topic and tenant; none once the key is forgotten."""

    places: list[KeyPlace]
