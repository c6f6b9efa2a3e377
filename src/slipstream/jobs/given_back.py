"""The attempts at tasks that were given back to the stream, for when they come again."""

from __future__ import annotations

import msgspec

GIVEN_BACK_MAX = 100_000


class Past(msgspec.Struct, frozen=True):
    """The attempts at a task before it was delivered again."""

    failed: int = 0
    throttled_ms: int = 0
    """When its host first asked it to wait (429, or 503 with Retry-After), in milliseconds; 0: it never did."""


NOTHING = Past()


class Attempts:
    """The attempts at each task that this worker gave back.

    Another worker that gets such a task counts from 0. JOBS_MAX_DELIVERIES holds in the end: a delivery with an attempt
    in it counts, on the bus, for all workers.
    """

    def __init__(self) -> None:
        self._past: dict[str, Past] = {}

    def known(self, message_id: str) -> Past:
        """Return the attempts once: the worker that gives the task back again says what they are by then."""
        return self._past.pop(message_id, NOTHING)

    def remember(self, message_id: str, past: Past) -> None:
        if past == NOTHING:
            return
        self._past[message_id] = past
        if len(self._past) > GIVEN_BACK_MAX:
            del self._past[next(iter(self._past))]
