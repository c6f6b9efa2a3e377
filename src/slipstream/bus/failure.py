"""How an attempt at a message failed."""

from __future__ import annotations

from typing import NamedTuple


class Failure(NamedTuple):
    """How an attempt failed."""

    reason: str
    delay_s: float | None = None
    """None: as the backoff says."""
    final: bool = False
    """There is no point in another attempt."""
    is_counted: bool = True
    """False where nothing was attempted: the next delivery has the same attempt number."""
