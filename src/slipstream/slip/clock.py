"""The time, as slips have it on the wire and as the store counts it."""

from __future__ import annotations

import datetime as dt
import time


def now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


def now_ms() -> int:
    return time.time_ns() // 1_000_000
