"""Where a stream has come to, as it lies in Spark's checkpoint.

Spark compares offsets as text, so what is equal must read the same: keys are sorted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from slipstream.pipeline.source.range import Range


class TopicOffsets(msgspec.Struct, frozen=True):
    incarnation: str
    partitions: dict[int, int]
    """The next to be read, by partition."""

    @property
    def least(self) -> int:
        """A partition that was added later has nothing below it: it was added after all of these were reached."""
        return min(self.partitions.values(), default=0)

    def of(self, partition: int) -> int:
        return self.partitions.get(partition, self.least)


class Offsets(msgspec.Struct, frozen=True, omit_defaults=True):
    topics: dict[str, TopicOffsets]
    initial: bool = False
    """Where a query begins, and what Spark does not keep …"""
    begun: dict[str, TopicOffsets] | None = None
    """… so that the first batch keeps it: repeated after a crash it begins there again, although `latest` has moved."""

    def to_dict(self) -> dict[str, Any]:
        """For Spark."""
        found: dict[str, Any] = {"topics": _plain(self.topics)}
        if self.initial:
            found["initial"] = True
        if self.begun is not None:
            found["begun"] = _plain(self.begun)
        return dict(sorted(found.items()))


def from_dict(found: Mapping[str, Any]) -> Offsets:
    return msgspec.convert(found, Offsets, strict=False)


def _plain(topics: Mapping[str, TopicOffsets]) -> dict[str, Any]:
    return {
        name: {
            "incarnation": topics[name].incarnation,
            "partitions": {str(number): offset for number, offset in sorted(topics[name].partitions.items())},
        }
        for name in sorted(topics)
    }


def ranges_between(start: Offsets, end: Offsets) -> list[Range]:
    """What lies between two offsets. What the end does not speak of any more is gone, and was said to be."""
    begun = end.begun if end.begun is not None and start.initial else start.topics
    found = []
    for topic, reached in end.topics.items():
        before = begun.get(topic)
        if before is None or before.incarnation != reached.incarnation:
            before = TopicOffsets(reached.incarnation, {})
        for partition, offset in reached.partitions.items():
            found.append(Range(topic, reached.incarnation, partition, before.of(partition), offset))
    return [each for each in found if each.width]
