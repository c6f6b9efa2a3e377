"""What one look cannot tell."""

from __future__ import annotations

from typing import Any

from slipstream.bus.names import DEAD_LETTER_SUFFIX
from slipstream.console.problems import GroupSeen
from slipstream.console.watch import BUS_SUFFIX, Watch
from tests.console.site import group, stats, topic

MINUTE_MS = 60_000


def still(watch: Watch, at_ms: int, **numbers: Any) -> int:
    ((seen,), _) = watch.see(stats(topic("orders", group(**numbers)), time_ms=at_ms))
    assert isinstance(seen, GroupSeen)
    return seen.still_ms


def test_a_group_stands_since_it_last_finished_something() -> None:
    watch = Watch(MINUTE_MS)
    assert still(watch, 1_000, lag=5, finished_per_s=2.0) == 0
    assert still(watch, 2_000, lag=5) == 1_000
    assert still(watch, 61_000, lag=5) == 60_000
    assert still(watch, 62_000, lag=4, finished_per_s=0.1) == 0
    assert still(watch, 63_000, lag=4) == 1_000


def test_a_group_that_is_first_seen_stands_since_then() -> None:
    assert still(Watch(MINUTE_MS), 5_000, lag=5) == 0


def test_a_group_with_nothing_to_do_does_not_stand() -> None:
    watch = Watch(MINUTE_MS)
    assert still(watch, 1_000, lag=0) == 0
    assert still(watch, 99_000, lag=2, in_flight=2) == 0, "all of it is in hand"
    assert still(watch, 199_000, lag=3, delayed=3) == 0, "none of it is due"
    assert still(watch, 200_000, lag=9) == 1_000


def test_a_pause_is_no_standstill_nor_its_end() -> None:
    watch = Watch(MINUTE_MS)
    still(watch, 1_000, lag=5)
    assert still(watch, 500_000, lag=5, paused=True) == 0
    assert still(watch, 501_000, lag=5) == 1_000


def test_a_group_that_is_forgotten_begins_anew() -> None:
    watch = Watch(MINUTE_MS)
    still(watch, 1_000, lag=5)
    watch.see(stats(topic("orders"), time_ms=2_000))
    assert still(watch, 90_000, lag=5) == 0


def arrived(watch: Watch, at_ms: int, **counts: int) -> dict[str, int]:
    topics = [topic(name, dead_letters=count) for name, count in counts.items()]
    _, dead = watch.see(stats(*topics, time_ms=at_ms))
    return {each.topic: each.arrived for each in dead}


def test_dead_letters_are_news_for_a_while() -> None:
    watch = Watch(MINUTE_MS)
    assert arrived(watch, 1_000, orders=7) == {}, "those were there before"
    assert arrived(watch, 2_000, orders=9) == {"orders": 2}
    assert arrived(watch, 30_000, orders=12) == {"orders": 5}
    assert arrived(watch, 63_000, orders=12) == {"orders": 3}, "the first two came more than a minute ago"
    assert arrived(watch, 99_000, orders=12) == {}


def test_those_of_a_new_topic_are_all_news() -> None:
    watch = Watch(MINUTE_MS)
    arrived(watch, 1_000, orders=0)
    assert arrived(watch, 2_000, orders=0, parcels=4) == {"parcels": 4}


def test_what_is_redriven_is_told_of_no_more() -> None:
    watch = Watch(MINUTE_MS)
    arrived(watch, 1_000, orders=0)
    assert arrived(watch, 2_000, orders=5) == {"orders": 5}
    assert arrived(watch, 3_000, orders=2) == {"orders": 2}
    assert arrived(watch, 4_000, orders=0) == {}
    assert arrived(watch, 5_000, orders=1) == {"orders": 1}


def test_dead_letters_of_the_bus_are_messages_of_a_topic() -> None:
    watch = Watch(MINUTE_MS)

    def seen(at_ms: int, count: int, dead_letters: int = 0) -> list[tuple[str, str, int]]:
        dead = topic("orders.DLQ", messages=count)
        _, found = watch.see(stats(topic("orders", dead_letters=dead_letters), dead, time_ms=at_ms))
        return [(each.topic, each.kept_in, each.arrived) for each in found]

    assert seen(1_000, 4) == []
    assert seen(2_000, 6) == [("orders", "orders.DLQ", 2)]
    assert seen(3_000, 7, dead_letters=7) == [("orders", "", 7)], "counted with their topic, as on NATS"
    assert DEAD_LETTER_SUFFIX == BUS_SUFFIX


def test_a_topic_that_is_deleted_is_forgotten() -> None:
    watch = Watch(MINUTE_MS)
    arrived(watch, 1_000, orders=0)
    arrived(watch, 2_000, orders=5)
    assert arrived(watch, 3_000) == {}
