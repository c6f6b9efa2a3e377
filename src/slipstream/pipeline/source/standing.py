"""How far topics reach at one moment."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class PartitionStanding(msgspec.Struct, frozen=True):
    number: int
    first: int
    """Whatever was below it is gone."""
    end: int
    """Everything that is there is below it."""
    since: int | None = None
    """The first that was stored at the time that was asked for, or later; `end` if none was."""


class TopicStanding(msgspec.Struct, frozen=True):
    name: str
    incarnation: str
    partitions: list[PartitionStanding]

    @property
    def end(self) -> int:
        """Offsets count per topic, and are given out in the order in which messages are stored, so this one number is
        an end for every partition, also for those whose own last message is far below it."""
        return max((partition.end for partition in self.partitions), default=0)


Standing = Mapping[str, TopicStanding]
"""By name, of the topics that are there."""
