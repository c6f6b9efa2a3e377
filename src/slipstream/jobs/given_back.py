"""The attempts at tasks that were given back to the stream, for when they come again."""

from __future__ import annotations

GIVEN_BACK_MAX = 100_000


class Attempts:
    """The number of attempts at each task that this worker gave back.

    Another worker that gets such a task counts from 0. JOBS_MAX_DELIVERIES holds in the end: a delivery with an attempt
    in it counts, on the bus, for all workers.
    """

    def __init__(self) -> None:
        self._made: dict[str, int] = {}

    def known(self, message_id: str) -> int:
        """Return the number once: the worker that gives the task back again says how many there are by then."""
        return self._made.pop(message_id, 0)

    def remember(self, message_id: str, made: int) -> None:
        if not made:
            return
        self._made[message_id] = made
        if len(self._made) > GIVEN_BACK_MAX:
            del self._made[next(iter(self._made))]
