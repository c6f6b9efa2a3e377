"""What an error looks like."""

from __future__ import annotations

import msgspec


class ErrorResponse(msgspec.Struct, frozen=True, omit_defaults=True):
    """Any answer with a status of 400 and above."""

    error: str
    """A code for programs, such as INVALID_ARGUMENT."""
    message: str
    """What happened and what to do, for people."""
    reason: str = ""
    """With 429 `overloaded`, or `disk_low` where the disk is nearly full; with 507 the setting that limits, such as
    `max_topics`; with 409 `in_progress`, where another request is at it right now and a moment later it is done."""
    retry_after_ms: int = 0
    """With 429: try again after this time; nothing was stored. With 503: it may work again after this time."""
    earliest_offset: int | None = None
    """With OFFSET_OUT_OF_RANGE: where the log begins now."""
