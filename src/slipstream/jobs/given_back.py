"""What is known of tasks that were given back, for when they come again."""

from __future__ import annotations

GIVEN_BACK_MAX = 10_000


class Attempts:
    """How many were made at the downloads: known here, if we are the only worker. Another begins to count anew, and in
    the end JOBS_MAX_DELIVERIES holds."""

    def __init__(self) -> None:
        self._made: dict[str, int] = {}

    def known(self, message_id: str) -> int:
        """Once: whoever gives it back says how many there are by then."""
        return self._made.pop(message_id, 0)

    def remember(self, message_id: str, made: int) -> None:
        self._made[message_id] = made
        if len(self._made) > GIVEN_BACK_MAX:
            del self._made[next(iter(self._made))]
