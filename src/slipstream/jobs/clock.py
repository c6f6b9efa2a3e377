"""The time of day, in the unit of the messages."""

from __future__ import annotations

import time


def now_ms() -> int:
    return time.time_ns() // 1_000_000
