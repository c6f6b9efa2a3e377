"""`GET /v2/server`: what answers here."""

from __future__ import annotations

from typing import Literal

import msgspec


class ServerCondition(msgspec.Struct, frozen=True, kw_only=True):
    """Something that an operator should mend; the server is ready nevertheless."""

    kind: str
    """`router` or `disk`."""
    level: Literal["error", "warning"]
    text: str
    detail: str
    """The reason, and what to do."""


class ServerInfo(msgspec.Struct, frozen=True, kw_only=True):
    version: str
    durability: str
    """What an answer to a producer promises: `always`, `interval` or `off`; `jetstream` where NATS keeps it."""
    bus: str
    """`slipstream`, or `nats`."""
    started_ms: int
    now_ms: int
    writable: bool
    """False after a disk error until a restart, and while there is no room on the disk."""
    conditions: list[ServerCondition] = []
    """What should be mended; none where all is well."""
