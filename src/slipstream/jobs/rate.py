"""How many jobs a tenant may submit: a bucket of tokens for each, which fills by itself."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

TENANTS_MAX = 10_000
"""Buckets that are kept: whoever was not heard of for long has a full one anyway."""


class Rate:
    """
    Example:
        if wait_s := rate.take("shop"):
            refuse(retry_after_s=wait_s)
    """

    def __init__(self, per_s: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        """0 per second: any number."""
        self._per_s = per_s
        self._burst = burst
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, tenant: str) -> float:
        """0 if it may; else how many seconds to wait."""
        if not self._per_s:
            return 0.0
        now = self._clock()
        tokens, at = self._buckets.pop(tenant, (float(self._burst), now))
        tokens = min(self._burst, tokens + (now - at) * self._per_s)
        is_allowed = tokens >= 1
        self._buckets[tenant] = (tokens - is_allowed, now)
        if len(self._buckets) > TENANTS_MAX:
            self._buckets.popitem(last=False)
        return 0.0 if is_allowed else (1 - tokens) / self._per_s
