"""What one look cannot tell."""

from __future__ import annotations

from typing import Any

from slipstream.broker import DEAD_LETTER_PREFIX
from slipstream.bus.names import DEAD_LETTER_SUFFIX
from slipstream.console.problems import GroupSeen
from slipstream.console.watch import BROKER_PREFIX, BUS_SUFFIX, Watch
from tests.console.site import group, stats, topic


def still(watch: Watch, at_ms: int, **numbers: Any) -> int:
    ((seen,), _) = watch.see(stats(topic("orders", group(**numbers)), time_ms=at_ms))
    assert isinstance(seen, GroupSeen)
    return seen.still_ms


def test_a_group_stands_since_it_last_finished_something() -> None:
    watch = Watch()
    assert still(watch, 1_000, lag=5, finished_per_s=2.0) == 0
    assert still(watch, 2_000, lag=5) == 1_000
    assert still(watch, 61_000, lag=5) == 60_000
    assert still(watch, 62_000, lag=4, finished_per_s=0.1) == 0
    assert still(watch, 63_000, lag=4) == 1_000


def test_a_group_that_is_first_seen_stands_since_then() -> None:
    assert still(Watch(), 5_000, lag=5) == 0


def test_a_group_with_nothing_to_do_does_not_stand() -> None:
    watch = Watch()
    assert still(watch, 1_000, lag=0) == 0
    assert still(watch, 99_000, lag=2, in_flight=2) == 0, "all of it is in hand"
    assert still(watch, 199_000, lag=3, delayed=3) == 0, "none of it is due"
    assert still(watch, 200_000, lag=9) == 1_000


def test_a_pause_is_no_standstill_nor_its_end() -> None:
    watch = Watch()
    still(watch, 1_000, lag=5)
    assert still(watch, 500_000, lag=5, paused=True) == 0
    assert still(watch, 501_000, lag=5) == 1_000


def test_a_group_that_is_forgotten_begins_anew() -> None:
    watch = Watch()
    still(watch, 1_000, lag=5)
    watch.see(stats(topic("orders"), time_ms=2_000))
    assert still(watch, 90_000, lag=5) == 0


def test_a_standstill_goes_on_over_a_restart_of_the_console() -> None:
    before = Watch()
    still(before, 1_000, lag=5)
    assert before.still() == {}
    assert still(before, 61_000, lag=5) == 60_000
    after = Watch(before.still())
    assert still(after, 181_000, lag=5) == 180_000
    assert still(after, 182_000, lag=5, finished_per_s=1.0) == 0
    assert after.still() == {}


def test_a_group_that_worked_while_the_console_was_away_does_not_stand_still() -> None:
    before = Watch()
    still(before, 1_000, lag=5, done=7)
    still(before, 61_000, lag=5, done=7)
    assert still(Watch(before.still()), 10_861_000, lag=5, done=7) == 10_860_000
    assert still(Watch(before.still()), 10_861_000, lag=5, done=8) == 0
    assert still(before, 10_861_000, lag=5, done=8) == 0, "nor if the broker could not be reached meanwhile"


def test_what_waits_for_another_attempt_does_not_stand() -> None:
    watch = Watch()
    still(watch, 1_000, lag=1, retrying=1)
    assert still(watch, 600_000, lag=1, retrying=1) == 0


def trend(watch: Watch, at_ms: int, lag: int) -> tuple[int, int]:
    ((seen,), _) = watch.see(stats(topic("orders", group(lag=lag, finished_per_s=1.0)), time_ms=at_ms))
    return seen.grown, seen.grown_over_ms


def test_a_lag_is_compared_with_that_of_five_minutes_ago() -> None:
    watch = Watch()
    assert trend(watch, 0, 100) == (0, 0)
    assert trend(watch, 60_000, 160) == (60, 60_000)
    assert trend(watch, 300_000, 400) == (300, 300_000)
    assert trend(watch, 360_000, 150) == (-10, 300_000), "compared with the lag after the first minute"


def dead_letters(**counts: int) -> dict[str, int]:
    topics = [topic(name, dead_letters=count) for name, count in counts.items()]
    _, dead = Watch().see(stats(*topics))
    return {each.topic: each.total for each in dead}


def test_dead_letters_are_told_of_as_long_as_they_are_there() -> None:
    assert dead_letters(orders=7, parcels=0) == {"orders": 7}


def test_dead_letters_of_the_bus_are_messages_of_a_topic() -> None:
    def seen(count: int, dead_letters: int = 0) -> list[tuple[str, str, int]]:
        dead = topic("orders.DLQ", messages=count)
        _, found = Watch().see(stats(topic("orders", dead_letters=dead_letters), dead))
        return [(each.topic, each.kept_in, each.total) for each in found]

    assert seen(6) == [("orders", "orders.DLQ", 6)]
    assert seen(7, dead_letters=7) == [("orders", "", 7)], "counted with their topic, as on NATS"
    assert seen(0) == []
    assert DEAD_LETTER_SUFFIX == BUS_SUFFIX


def test_the_broker_and_the_bus_may_both_have_dead_letters_of_a_topic() -> None:
    topics = (topic("orders", dead_letters=2), topic("dlq.orders", messages=2), topic("orders.DLQ", messages=5))
    _, found = Watch().see(stats(*topics), {"orders.DLQ": 1})
    assert [(each.topic, each.kept_in, each.total) for each in found] == [
        ("orders", "", 2),
        ("orders", "orders.DLQ", 4),
    ]
    _, found = Watch().see(stats(*topics), {"orders.DLQ": 5})
    assert [each.kept_in for each in found] == [""]
    assert DEAD_LETTER_PREFIX == BROKER_PREFIX
