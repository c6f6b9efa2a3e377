"""The facts that need several samples of the broker: since when a group stands still, and whether its lag grows."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from msgspec.structs import replace

from slipstream.api.events import GroupStats, Stats
from slipstream.console.problems import DeadLettersSeen, GroupSeen

BUS_SUFFIX = ".DLQ"
"""The ending of the bus's own dead-letter topics. An import would load all of the bus, also in a broker's process; a
test compares the two."""
BROKER_PREFIX = "dlq."
"""How the dead-letter topics of the broker begin."""

TREND_MS = 5 * 60_000
"""The span over which the lag of a group is compared."""
SAMPLE_MS = 10_000

Key: TypeAlias = tuple[str, str]
"""Topic and group."""


class Still(NamedTuple):
    """A group that stands still."""

    since_ms: int
    done: int
    """Its count of finished messages, which tells whether it has moved while no console was looking."""


class Watch:
    """Compares each sample with those before it."""

    def __init__(self, still: Mapping[Key, Still] | None = None) -> None:
        """`still` are the groups that stood still when an earlier process ended."""
        self._moved_ms = {key: each.since_ms for key, each in (still or {}).items()}
        """When a group last finished something, or had nothing to do."""
        self._done = {key: each.done for key, each in (still or {}).items()}
        """How many messages each group had finished in the last sample."""
        self._lags: dict[Key, deque[tuple[int, int]]] = {}
        """Time and lag, a few times a minute."""
        self._now_ms = 0

    def see(
        self, stats: Stats, handled: Mapping[str, int] | None = None
    ) -> tuple[tuple[GroupSeen, ...], tuple[DeadLettersSeen, ...]]:
        """Return the groups, and the topics with dead letters. `handled` is how many messages of each dead-letter topic
        of the bus were redriven or discarded."""
        self._now_ms = stats.time_ms
        groups = tuple(
            self._group(topic.topic, group, stats.time_ms) for topic in stats.topics for group in topic.groups
        )
        there = {(group.topic, group.group) for group in groups}
        self._moved_ms = {key: value for key, value in self._moved_ms.items() if key in there}
        self._done = {key: value for key, value in self._done.items() if key in there}
        self._lags = {key: value for key, value in self._lags.items() if key in there}
        return groups, _dead_letters(stats, handled or {})

    def still(self) -> dict[Key, Still]:
        """Return the groups that have stood still since before the last sample."""
        return {
            key: Still(moved_ms, self._done[key]) for key, moved_ms in self._moved_ms.items() if moved_ms < self._now_ms
        }

    def _group(self, topic: str, group: GroupStats, now_ms: int) -> GroupSeen:
        seen = GroupSeen(
            topic=topic,
            group=group.group,
            lag=group.lag,
            in_flight=group.in_flight,
            delayed=group.delayed,
            consumers=group.consumers,
            paused=group.paused,
            oldest_ms=group.oldest_unfinished_age_ms,
            parked=group.parked,
            parked_owner=group.parked_owner,
            retrying=group.retrying,
            worst=group.worst,
        )
        key = (topic, group.group)
        has_moved = group.finished_per_s > 0 or group.done != self._done.get(key)
        if has_moved or not seen.waiting or group.paused:
            self._moved_ms[key] = now_ms
        self._done[key] = group.done
        grown, over_ms = self._trend(key, group.lag, now_ms)
        return replace(seen, still_ms=max(0, now_ms - self._moved_ms[key]), grown=grown, grown_over_ms=over_ms)

    def _trend(self, key: Key, lag: int, now_ms: int) -> tuple[int, int]:
        """Return by how much the lag has grown, and in what time."""
        lags = self._lags.setdefault(key, deque())
        while lags and lags[0][0] < now_ms - TREND_MS:
            lags.popleft()
        if not lags or now_ms - lags[-1][0] >= SAMPLE_MS:
            lags.append((now_ms, lag))
        return lag - lags[0][1], now_ms - lags[0][0]


def _dead_letters(stats: Stats, handled: Mapping[str, int]) -> tuple[DeadLettersSeen, ...]:
    """Return the topics with dead letters: those of the broker, and those of the bus, which are messages of a topic of
    their own. Where the numbers count those with their topic, as on NATS, they are counted once."""
    counted = {topic.topic: topic.dead_letters for topic in stats.topics if topic.dead_letters}
    names = {topic.topic for topic in stats.topics}
    counted_twice = {name + BUS_SUFFIX for name in counted if BROKER_PREFIX + name not in names}
    of_the_bus = {
        topic.topic: left
        for topic in stats.topics
        if topic.topic.endswith(BUS_SUFFIX)
        and topic.topic not in counted_twice
        and (left := topic.messages - handled.get(topic.topic, 0)) > 0
    }
    return (
        *(DeadLettersSeen(topic=topic, total=total) for topic, total in counted.items()),
        *(
            DeadLettersSeen(topic=topic.removesuffix(BUS_SUFFIX), total=total, kept_in=topic)
            for topic, total in of_the_bus.items()
        ),
    )
