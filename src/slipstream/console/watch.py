"""What one look at the broker cannot tell: since when a group stands still, and which dead letters are new."""

from __future__ import annotations

from collections import deque

from msgspec.structs import replace

from slipstream.api.events import GroupStats, Stats
from slipstream.console.problems import DeadLettersSeen, GroupSeen

BUS_SUFFIX = ".DLQ"
"""Where the bus keeps what its handlers could not do. To import it from there would load all of the bus, also in a
broker's process; a test holds the two against each other."""


class Watch:
    """Looks at every sample in turn."""

    def __init__(self, dead_letters_ms: int) -> None:
        self._dead_letters_ms = dead_letters_ms
        self._moved_ms: dict[tuple[str, str], int] = {}
        """When a group last finished something, or had nothing to do."""
        self._dead: dict[str, int] = {}
        self._arrived: dict[str, deque[tuple[int, int]]] = {}
        """Topic → when how many more of its dead letters were there."""

    def see(self, stats: Stats) -> tuple[tuple[GroupSeen, ...], tuple[DeadLettersSeen, ...]]:
        groups = tuple(
            self._group(topic.topic, group, stats.time_ms) for topic in stats.topics for group in topic.groups
        )
        there = {(group.topic, group.group) for group in groups}
        self._moved_ms = {key: value for key, value in self._moved_ms.items() if key in there}
        return groups, self._dead_letters(stats)

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
        )
        key = (topic, group.group)
        if group.finished_per_s > 0 or not seen.waiting or group.paused or key not in self._moved_ms:
            self._moved_ms[key] = now_ms
        return replace(seen, still_ms=max(0, now_ms - self._moved_ms[key]))

    def _dead_letters(self, stats: Stats) -> tuple[DeadLettersSeen, ...]:
        now = _dead_letters_now(stats)
        first = not self._dead
        for topic, count in now.items():
            new = count - self._dead.get(topic, count if first else 0)
            if new > 0:
                self._arrived.setdefault(topic, deque()).append((stats.time_ms, new))
        self._dead = now
        found = []
        for topic in list(self._arrived):
            arrived = self._arrived[topic]
            while arrived and arrived[0][0] < stats.time_ms - self._dead_letters_ms:
                arrived.popleft()
            if not arrived or not now.get(topic):
                del self._arrived[topic]  # too long ago; or redriven, or gone with the topic
                continue
            count = min(now[topic], sum(new for _, new in arrived))
            since_ms = max(1_000, stats.time_ms - arrived[0][0])
            kept_in = topic if topic.endswith(BUS_SUFFIX) else ""
            found.append(
                DeadLettersSeen(
                    topic=topic.removesuffix(BUS_SUFFIX),
                    arrived=count,
                    since_ms=since_ms,
                    total=now[topic],
                    kept_in=kept_in,
                )
            )
        return tuple(found)


def _dead_letters_now(stats: Stats) -> dict[str, int]:
    """By topic: those that the broker has given up; and those of the bus, which are messages of a topic of its own.
    Where the numbers count those with their topic, as on NATS, once."""
    counted = {topic.topic: topic.dead_letters for topic in stats.topics}
    of_the_bus = {topic.topic: topic.messages for topic in stats.topics if topic.topic.endswith(BUS_SUFFIX)}
    return counted | {
        name: messages for name, messages in of_the_bus.items() if not counted.get(name.removesuffix(BUS_SUFFIX))
    }
