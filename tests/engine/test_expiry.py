"""Groups and topics that have been idle are removed, from memory and from the disk, logged and counted."""

from __future__ import annotations

import logging

import pytest

from slipstream.broker import BrokerConfig, TopicConfig
from slipstream.engine import ManualClock
from slipstream.engine.expiry import EXPIRED_AT_ONCE, expire
from slipstream.store.memory import MemoryStore
from tests.store.node import Running

MINUTE_MS = 60_000
CONFIG = BrokerConfig(
    topic=TopicConfig(expiry_ms=10 * MINUTE_MS), group_expiry_ms=5 * MINUTE_MS, group_absent_ms=MINUTE_MS
)


def pass_by(node: Running, clock: ManualClock, minutes: int) -> None:
    clock.advance(minutes * MINUTE_MS)
    node.engine._check_retention()
    node.until(lambda: not node.engine._in_journal)


def test_an_idle_group_and_then_its_topic_are_removed(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    with Running(MemoryStore(), CONFIG, clock) as node:
        node.create("t")
        node.take("t", 0)
        pass_by(node, clock, 4)
        topic = node.engine.broker.topic("t")
        assert list(topic.groups) == ["g"]
        with caplog.at_level(logging.INFO, "slipstream.engine.expiry"):
            pass_by(node, clock, 1)
            assert list(topic.groups) == []
            pass_by(node, clock, 5)
        assert "t" not in node.engine.broker.state.topics
        assert caplog.messages == [
            "group g of t has expired: it never acked, and was not used for 5 min",
            "topic t has expired: it was not used for 10 min",
        ]
        assert node.engine.broker.expiry.totals == {"group": 1, "topic": 1}


def test_many_are_removed_some_at_a_time() -> None:
    clock = ManualClock()
    with Running(MemoryStore(), CONFIG, clock) as node:
        for number in range(EXPIRED_AT_ONCE + 5):
            node.create(f"t{number}")
        clock.advance(10 * MINUTE_MS)
        broker = node.engine.broker
        removed: list[str] = []
        for expected in (EXPIRED_AT_ONCE, EXPIRED_AT_ONCE + 5, EXPIRED_AT_ONCE + 5):
            expire(broker, clock.now_ms(), lambda topic: removed.append(topic.name))
            assert len(removed) == expected
