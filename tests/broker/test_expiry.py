"""Groups and topics that expire, and those that must not."""

from __future__ import annotations

from typing import Any

import pytest

from slipstream.broker import BrokerConfig, BrokerFull, RetryPolicy, TopicConfig
from tests.broker.simulator import At, Simulator

DAY_MS = 24 * 3600 * 1000
EXPIRY_MS = 30 * DAY_MS


def started(**config: Any) -> Simulator:
    sim = Simulator(BrokerConfig(topic=TopicConfig(expiry_ms=EXPIRY_MS, retention_ms=0), **config))
    sim.create()
    return sim


def peek(sim: Simulator, group: str = "g") -> None:
    """A consumer reads for the group, and goes without an ack."""
    sim.broker.detach(sim.now_ms, sim.attach(group=group, credit=0))


def expired_groups(sim: Simulator) -> list[str]:
    return [group.name for group in sim.broker.expiry.groups(sim.now_ms)]


def expired_topics(sim: Simulator) -> list[str]:
    return [topic.name for topic in sim.broker.expiry.topics(sim.now_ms)]


RESTARTS = pytest.mark.parametrize("restart", ["", "journal", "snapshot", "snapshot twice"])


def _restart(sim: Simulator, how: str) -> None:
    for _ in range(2 if how == "snapshot twice" else 1):
        if how.startswith("snapshot"):
            sim.checkpoint()
        if how:
            sim.crash()
            sim.advance(2 * 3600 * 1000)  # its consumers have had the time to come back


# Groups


@RESTARTS
def test_a_group_that_only_took_messages_expires_also_over_restarts(restart: str) -> None:
    sim = started()
    sim.produce()
    sim.broker.detach(sim.now_ms, sim.attach())
    sim.advance(EXPIRY_MS - DAY_MS)
    _restart(sim, restart)
    assert expired_groups(sim) == []
    sim.advance(DAY_MS)
    assert expired_groups(sim) == ["g"]


def test_a_group_whose_time_was_over_when_the_broker_started_is_given_an_hour() -> None:
    sim = started()
    sim.produce()
    sim.broker.detach(sim.now_ms, sim.attach())
    sim.checkpoint()
    sim.now_ms += 2 * EXPIRY_MS
    sim.crash()
    assert expired_groups(sim) == []
    sim.advance(sim.config.group_absent_ms)
    assert expired_groups(sim) == ["g"]
    peek(sim)
    assert expired_groups(sim) == [], "it came back"


@RESTARTS
@pytest.mark.parametrize("way", ["ack", "ack many", "seek", "pause", "retry policy"])
def test_a_group_that_has_a_place_or_a_setting_is_kept(way: str, restart: str) -> None:
    sim = started()
    sim.produce()
    consumer = sim.attach()
    if way == "ack":
        sim.ack(0)
    elif way == "ack many":
        sim.ack_batch([At(0, 0)])
    elif way == "seek":
        sim.broker.seek(sim.now_ms, "t", "g", lambda partition: 0)
    elif way == "pause":
        sim.broker.pause(sim.now_ms, "t", "g", paused=True)
    else:
        sim.broker.set_group_retry(sim.now_ms, "t", "g", RetryPolicy(3))
    sim.broker.detach(sim.now_ms, consumer)
    sim.commit()
    _restart(sim, restart)
    sim.advance(10 * EXPIRY_MS)
    assert expired_groups(sim) == []


def test_a_group_with_a_consumer_is_kept_however_long_it_waits() -> None:
    sim = started()
    sim.attach()
    sim.advance(10 * EXPIRY_MS)
    assert expired_groups(sim) == []


def test_no_group_expires_where_that_is_turned_off() -> None:
    sim = started(group_expiry_ms=0)
    peek(sim)
    sim.advance(10 * EXPIRY_MS)
    assert expired_groups(sim) == []


# Topics


@RESTARTS
def test_a_topic_whose_groups_have_finished_everything_expires(restart: str) -> None:
    sim = started()
    sim.produce()
    consumer = sim.attach()
    sim.ack(0)
    sim.broker.detach(sim.now_ms, consumer)
    sim.advance(EXPIRY_MS - DAY_MS)
    _restart(sim, restart)
    assert expired_topics(sim) == []
    sim.advance(DAY_MS)
    assert expired_topics(sim) == ["t"]


def test_a_topic_with_unfinished_messages_is_kept() -> None:
    sim = started()
    sim.produce()
    peek(sim)
    sim.advance(10 * EXPIRY_MS)
    assert expired_topics(sim) == []


def test_a_topic_with_a_consumer_is_kept() -> None:
    sim = started()
    sim.produce()
    sim.attach()
    sim.ack(0)
    sim.advance(10 * EXPIRY_MS)
    assert expired_topics(sim) == []


def test_a_topic_without_groups_expires_only_empty() -> None:
    sim = started()
    sim.create("empty")
    sim.produce()
    sim.advance(EXPIRY_MS)
    assert expired_topics(sim) == ["empty"]
    sim.broker.trim(sim.now_ms, sim.broker.topic("t").partitions[0], 1, 1, 1)
    assert expired_topics(sim) == ["t", "empty"], "retention has removed the last message"


def test_a_message_starts_the_time_again() -> None:
    sim = started()
    peek(sim)
    sim.advance(EXPIRY_MS - 1)
    sim.produce()
    consumer = sim.attach()
    sim.ack(0)
    sim.broker.detach(sim.now_ms, consumer)
    sim.advance(EXPIRY_MS - 1)
    assert expired_topics(sim) == []
    sim.advance(1)
    assert expired_topics(sim) == ["t"]


def test_a_topic_may_be_set_to_expire_or_not() -> None:
    sim = Simulator(BrokerConfig())
    sim.create("kept")
    sim.create("short", expiry_ms=DAY_MS)
    sim.advance(10 * EXPIRY_MS)
    assert expired_topics(sim) == ["short"]


# A full broker


def test_a_full_broker_says_which_limit_is_reached() -> None:
    sim = Simulator(BrokerConfig(topics_max=1, groups_max=1))
    sim.create()
    peek(sim)
    with pytest.raises(BrokerFull, match=r"it has 1 topics \(max_topics\)") as full:
        sim.create("u")
    assert full.value.reason == "max_topics"
    with pytest.raises(BrokerFull, match="max_groups"):
        sim.attach(group="h")
    sim.broker.forget_group("t", "g")
    peek(sim, "h")
