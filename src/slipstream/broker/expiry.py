"""Which groups and topics have been idle for so long that they are removed.

A group expires if it has never acked a message, was never sent to a place, is not paused, has no retry policy of its
own and has no consumer. A topic expires if every group has finished everything and has no consumer; without any group,
it has to be empty. So no message is lost that a consumer may still be waiting for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from slipstream.broker.config import BrokerConfig
from slipstream.broker.group import Group
from slipstream.broker.state import State
from slipstream.broker.topic import Topic


class Expiry:
    """Finds what has expired. The caller removes it, and counts it in `totals`."""

    def __init__(self, config: BrokerConfig, state: State) -> None:
        self.config = config
        self.state = state
        self.resumed_ms = 0
        """When the broker started: its consumers get the time to come back before anything expires."""
        self.totals: Counter[str] = Counter()
        """How many expired, by kind: "group" or "topic"."""

    def groups(self, now_ms: int) -> Iterator[Group]:
        expiry_ms = self.config.group_expiry_ms
        if expiry_ms <= 0 or not self._has_waited(now_ms, expiry_ms):
            return
        for group in self.state.groups_by_id.values():
            if group.has_progress or group.consumers or group.paused or group.retry is not None:
                continue
            if now_ms - group.used_ms >= expiry_ms:
                yield group

    def topics(self, now_ms: int) -> Iterator[Topic]:
        for topic in self.state.topics.values():
            expiry_ms = topic.config.expiry_ms
            if expiry_ms <= 0 or not self._has_waited(now_ms, expiry_ms):
                continue
            used_ms = max(topic.used_ms, topic.created_ms, *(group.used_ms for group in topic.groups.values()))
            if now_ms - used_ms >= expiry_ms and _is_finished(topic):
                yield topic

    def _has_waited(self, now_ms: int, expiry_ms: int) -> bool:
        return now_ms - self.resumed_ms >= min(expiry_ms, self.config.group_absent_ms)


def _is_finished(topic: Topic) -> bool:
    if not topic.groups:
        return all(partition.first_index == partition.count for partition in topic.partitions)
    return all(
        not group.consumers and all(progress.lag == 0 for progress in group.progress) for group in topic.groups.values()
    ) and all(partition.committed == partition.count for partition in topic.partitions)
