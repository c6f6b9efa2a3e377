"""What a client may send, and how long it may take."""

from __future__ import annotations

import msgspec


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    body_bytes: int = 1 << 20
    line_bytes: int = 64 << 10
    header_bytes: int = 64 << 10
    headers: int = 100
    receive_timeout_ms: int = 10_000
    """From the first byte of a request to its last."""
    idle_timeout_ms: int = 75_000
    """Between requests on one connection."""
    stall_timeout_ms: int = 30_000
    """A stream whose reader takes nothing for this long is dropped; its leases run out."""
    connections: int = 10_000
    pipelined: int = 128
    """Requests under way on one connection before its reading is paused."""
    batch_bytes: int = 16 << 20
    """Body of a batch of messages."""
    batch_messages: int = 10_000
    """Messages in one request or answer of `/v2`."""
    wait_ms: int = 60_000
    """Longest wait for messages."""
    redrives: int = 16
    """Redrives under way at a time."""
    read_bytes: int = 64 << 20
    """Most that one read of the log may ask for."""
