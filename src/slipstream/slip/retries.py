"""How long a step that failed waits for its next attempt."""

from __future__ import annotations

import random

import msgspec

from slipstream.slip import clock, hints
from slipstream.slip.errors import InvalidSlip
from slipstream.slip.event import RoutingStep

EARLY_MS = 5
"""A retry that comes so much too early is not sent to wait again."""


class Retries(msgspec.Struct, frozen=True):
    """`base_ms`, doubling with every attempt up to `longest_ms`, and up to `base_ms` more by chance, so that what
    failed together does not come back together."""

    base_ms: int = 500
    longest_ms: int = 60_000

    def __post_init__(self) -> None:
        if self.base_ms < 0 or self.longest_ms < 0:
            raise InvalidSlip(f"{self!r}: a pause is 0 ms or longer")

    def pause_ms(self, attempt: int) -> int:
        """After this attempt, counted from 0."""
        pause = min(self.base_ms * 2 ** min(attempt, 64), self.longest_ms)
        return int(pause + random.uniform(0, self.base_ms))


def early_ms(step: RoutingStep) -> int:
    """How much of the pause before this attempt is left; 0 if it may begin."""
    not_before = step.attributes.get(hints.NOT_BEFORE)
    left_ms = 0 if not_before is None else int(not_before) - clock.now_ms()
    return left_ms if left_ms > EARLY_MS else 0
