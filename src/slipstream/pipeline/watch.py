"""Who wants to see how the queries go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from slipstream.pipeline.queries import Query
    from slipstream.pipeline.stream import Told


class Watch(Protocol):
    """All of it may be called from threads of the queries."""

    def began(self, queries: Sequence[Query]) -> None:
        """They are being started."""
        return

    def started(self) -> None:
        """All of them are."""
        return

    def turned(self) -> None:
        """The loop that looks after them has turned once more."""
        return

    def told(self, told: Told) -> None:
        """A batch is in its tables."""
        return

    def behind(self, query: str, read: int, lag: int) -> None:
        """Of the messages that are there, so many lie behind the query, and so many before it."""
        return

    def failed(self, query: str) -> None:
        """It has stopped, and not because it was asked to."""
        return


class Nobody(Watch):
    """Sees nothing."""


class Watches(Watch):
    """Several, each told everything."""

    def __init__(self, *watches: Watch) -> None:
        self._watches = watches

    def began(self, queries: Sequence[Query]) -> None:
        for each in self._watches:
            each.began(queries)

    def started(self) -> None:
        for each in self._watches:
            each.started()

    def turned(self) -> None:
        for each in self._watches:
            each.turned()

    def told(self, told: Told) -> None:
        for each in self._watches:
            each.told(told)

    def behind(self, query: str, read: int, lag: int) -> None:
        for each in self._watches:
            each.behind(query, read, lag)

    def failed(self, query: str) -> None:
        for each in self._watches:
            each.failed(query)
