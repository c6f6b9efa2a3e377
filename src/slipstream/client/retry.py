"""When a request is sent again, and after how long."""

from __future__ import annotations

import enum
import random

import msgspec

from slipstream.client.errors import ConnectionFailed, InProgress, Overloaded, SlipstreamError, Unavailable


class Repeat(enum.Enum):
    """What saying a thing twice does; each call says which it is, and why."""

    SAFE = enum.auto()
    """No more than saying it once: it is repeated after anything that may pass."""
    KEYED = enum.auto()
    """No more than saying it once, because it carries a key. 409 may say that a copy is being stored right now."""
    UNDONE = enum.auto()
    """Something else: it is repeated only if the server has surely not done it."""


class Retries(msgspec.Struct, frozen=True, kw_only=True):
    """How long and how often. The pauses double and are drawn at random below that (full jitter), so that clients
    that failed together do not come back together."""

    for_ms: int = 30_000
    """No new attempt begins later than this after the first; 0: one attempt only."""
    backoff_ms: int = 50
    backoff_ms_max: int = 5_000

    def pause_ms(self, failures: int, asked_ms: int = 0) -> float:
        """After so many failures. What the server asked for is waited for in full, and the jitter comes after it."""
        # 2**20 is far beyond any limit: a larger shift only costs time.
        limit_ms = min(self.backoff_ms << min(failures - 1, 20), self.backoff_ms_max)
        return asked_ms + random.uniform(0, limit_ms)

    def endless_pause_ms(self, failures: int, error: SlipstreamError) -> float:
        """Likewise, for who tries without end: `for_ms` does not save them from an absurd Retry-After."""
        return self.pause_ms(failures, min(asked_ms(error), ENDLESS_ASKED_MS))


BEING_STORED_MS = 2_000
"""For how long a copy may be said to be under way: a commit takes milliseconds."""

ENDLESS_ASKED_MS = 60_000

ONCE = Retries(for_ms=0)
"""For who has a loop of their own."""


def may_repeat(error: SlipstreamError, repeat: Repeat) -> bool:
    match error:
        case Overloaded() | ConnectionFailed(sent=False):
            return True  # the server says that it did nothing, or was never reached
        case Unavailable() | ConnectionFailed():
            return repeat is not Repeat.UNDONE
        case InProgress():
            return repeat is Repeat.KEYED
        case _:
            return False


def give_up_ms(error: SlipstreamError, retries: Retries) -> int:
    """How long after the first attempt, or after the first that met a copy, such a failure is worth another one."""
    return min(retries.for_ms, BEING_STORED_MS) if isinstance(error, InProgress) else retries.for_ms


def asked_ms(error: SlipstreamError) -> int:
    return error.retry_after_ms if isinstance(error, Overloaded | Unavailable) else 0
