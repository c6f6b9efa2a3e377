"""The last ten minutes."""

from __future__ import annotations

from slipstream.api import Stats
from slipstream.console.history import STEP_MS, STEPS, Ring
from tests.console.site import stats


def add(ring: Ring, seen: Stats) -> None:
    ring.add(seen, seen.dead_letters)


def test_a_step_has_the_rate_of_all_its_time_the_worst_age_and_the_last_of_the_rest() -> None:
    ring = Ring()
    add(ring, stats(time_ms=10_000, interval_ms=1_000, produced_per_s=10.0, acked_per_s=0.0, in_flight=9))
    add(ring, stats(time_ms=11_000, interval_ms=1_000, produced_per_s=20.0, oldest_unfinished_age_ms=700, in_flight=4))
    add(ring, stats(time_ms=13_000, interval_ms=2_000, produced_per_s=0.0, dead_letters=3, in_flight=5))
    history = ring.history()
    assert history.time_ms == [13_000]
    assert history.produced_per_s == [7.5]
    assert (history.oldest_ms, history.in_flight, history.dead_letters) == ([700], [5], [3])


def test_it_goes_back_for_ten_minutes_and_no_further() -> None:
    ring = Ring()
    for number in range(STEPS + 30):
        add(ring, stats(time_ms=number * STEP_MS, interval_ms=STEP_MS, acked_per_s=float(number)))
    history = ring.history()
    assert len(history.time_ms) == STEPS
    assert history.time_ms[-1] - history.time_ms[0] == (STEPS - 1) * STEP_MS == 595_000
    assert history.acked_per_s[-1] == STEPS + 29


def test_a_gap_is_a_gap_and_what_is_older_than_ten_minutes_is_gone() -> None:
    ring = Ring()
    add(ring, stats(time_ms=0))
    add(ring, stats(time_ms=300_000))
    assert ring.history().time_ms == [0, 300_000]
    add(ring, stats(time_ms=700_000))
    assert ring.history().time_ms == [300_000, 700_000]


def test_before_anything_was_seen_there_is_nothing() -> None:
    assert Ring().history().time_ms == []
