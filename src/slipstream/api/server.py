"""`GET /v2/server`: what answers here."""

from __future__ import annotations

import msgspec


class ServerInfo(msgspec.Struct, frozen=True, kw_only=True):
    version: str
    durability: str
    """What an answer to a producer promises: `always`, `interval` or `off`; `jetstream` where NATS keeps it."""
    bus: str
    """`slipstream`, or `nats`."""
    started_ms: int
    now_ms: int
    writable: bool
    """False after a disk error, until somebody has mended it and restarted."""
