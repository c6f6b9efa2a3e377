"""The time of day, in the unit of the messages."""

from __future__ import annotations

import time

CLOCKS_DIFFER_MS = 300_000
"""Maximum difference of two clocks, in milliseconds. A time further in the future is wrong, and everything that is said
later would be older than it."""


def now_ms() -> int:
    return time.time_ns() // 1_000_000
