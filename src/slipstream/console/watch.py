"""What one look at the broker cannot tell: since when a group stands still, and whether its lag grows."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from msgspec.structs import replace

from slipstream.api.events import GroupStats, Stats
from slipstream.console.problems import DeadLettersSeen, GroupSeen

BUS_SUFFIX = ".DLQ"
"""The ending of the bus's own dead-letter topics. An import would load all of the bus, also in a broker's process; a
test compares the two."""

TREND_MS = 5 * 60_000
"""The span over which the lag of a group is compared."""
SAMPLE_MS = 10_000

Key = tuple[str, str]


class Watch:
    """Looks at every sample in turn."""

    def __init__(self, still_since: Mapping[Key, int] | None = None) -> None:
        """`still_since` are the groups that stood still when an earlier process ended: when each last moved."""
        self._moved_ms: dict[Key, int] = dict(still_since or {})
        """When a group last finished something, or had nothing to do."""
        self._lags: dict[Key, deque[tuple[int, int]]] = {}
        """Time and lag, a few times a minute."""
        self._now_ms = 0

    def see(self, stats: Stats) -> tuple[tuple[GroupSeen, ...], tuple[DeadLettersSeen, ...]]:
        self._now_ms = stats.time_ms
        groups = tuple(
            self._group(topic.topic, group, stats.time_ms) for topic in stats.topics for group in topic.groups
        )
        there = {(group.topic, group.group) for group in groups}
        self._moved_ms = {key: value for key, value in self._moved_ms.items() if key in there}
        self._lags = {key: value for key, value in self._lags.items() if key in there}
        return groups, _dead_letters(stats)

    def still_since(self) -> dict[Key, int]:
        """Return the groups that have stood still since before the last look, and when each last moved."""
        return {key: moved_ms for key, moved_ms in self._moved_ms.items() if moved_ms < self._now_ms}

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
            retrying=group.retrying,
            worst=group.worst,
        )
        key = (topic, group.group)
        if group.finished_per_s > 0 or not seen.waiting or group.paused or key not in self._moved_ms:
            self._moved_ms[key] = now_ms
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


def _dead_letters(stats: Stats) -> tuple[DeadLettersSeen, ...]:
    """By topic: those that the broker has given up; and those of the bus, which are messages of a topic of its own.
    Where the numbers count those with their topic, as on NATS, once."""
    counted = {topic.topic: topic.dead_letters for topic in stats.topics if topic.dead_letters}
    of_the_bus = {
        topic.topic: topic.messages
        for topic in stats.topics
        if topic.messages and topic.topic.endswith(BUS_SUFFIX) and not counted.get(topic.topic.removesuffix(BUS_SUFFIX))
    }
    return (
        *(DeadLettersSeen(topic=topic, total=total) for topic, total in counted.items()),
        *(
            DeadLettersSeen(topic=topic.removesuffix(BUS_SUFFIX), total=total, kept_in=topic)
            for topic, total in of_the_bus.items()
        ),
    )
