"""How long a step that failed waits for its next attempt."""

from __future__ import annotations

import random

import msgspec

from slipstream.slip.errors import InvalidSlip


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
