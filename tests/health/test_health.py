from __future__ import annotations

import pytest

from slipstream.health import Answer, Health, HealthSettings


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def made(clock: Clock) -> Health:
    return Health(HealthSettings(stall_ms=2_000, trouble_ms=5_000), clock)


def test_a_part_is_starting_until_it_says_that_it_is_ready() -> None:
    health = made(Clock())
    assert health.readiness() == Answer("starting", "it is being started")
    health.starting("Spark is being started")
    assert health.readiness() == Answer("starting", "Spark is being started")
    health.ready()
    assert health.readiness() == Answer("ready")


def test_a_part_that_stops_is_not_ready_and_never_again() -> None:
    health = made(Clock())
    health.ready()
    health.stopping()
    assert health.readiness().status == "stopping"
    health.ready()
    assert health.readiness().status == "stopping"


def test_a_part_that_is_stopped_before_it_was_ready_does_not_become_ready() -> None:
    health = made(Clock())
    health.stopping()
    health.ready()
    health.starting("the bus is being opened")
    assert health.readiness().status == "stopping"


def test_trouble_that_cannot_be_told_is_the_reason_and_the_loop_is_alive(caplog: pytest.LogCaptureFixture) -> None:
    def trouble() -> str:
        raise KeyError("a mistake of ours")

    clock = Clock()
    health = made(clock)
    health.ready(trouble)
    for _ in range(10):
        health.beat()
        clock.now += 1
    assert health.liveness() == Answer("live")
    assert health.readiness() == Answer("waiting", "for 10 s: how it is cannot be told: KeyError: 'a mistake of ours'")
    assert [record.message for record in caplog.records] == ["how this part is cannot be told"], (
        "and not with each beat"
    )


def test_a_loop_that_has_not_begun_is_alive() -> None:
    clock = Clock()
    health = made(clock)
    clock.now += 3600
    assert health.liveness() == Answer("live")


def test_a_loop_that_stands_still_is_neither_alive_nor_ready_and_the_reason_says_how_long() -> None:
    clock = Clock()
    health = made(clock)
    health.ready()
    health.beat()
    clock.now += 1.9
    assert health.liveness() == Answer("live")
    clock.now += 0.6
    found = health.liveness()
    assert found.status == "stalled"
    assert "has not turned for 2.5 s, and 2 s are allowed (HEALTH_STALL_MS)" in found.reason
    assert health.readiness() == Answer("waiting", found.reason)
    health.beat()
    assert health.liveness() == Answer("live")
    assert health.readiness() == Answer("ready")


def test_a_loop_that_is_over_need_not_turn() -> None:
    clock = Clock()
    health = made(clock)
    health.beat()
    health.rest()
    clock.now += 3600
    assert health.liveness() == Answer("live")


def test_trouble_that_lasts_is_a_reason_not_to_be_ready_and_a_moment_of_it_is_none() -> None:
    clock = Clock()
    health = made(clock)
    trouble = ["no server there"]
    health.ready(lambda: trouble[0])
    health.beat()
    assert health.readiness() == Answer("ready")
    for _ in range(5):
        clock.now += 1
        health.beat()
    assert health.readiness() == Answer("waiting", "for 5 s: no server there")
    trouble[0] = ""
    health.beat()
    assert health.readiness() == Answer("ready")
    trouble[0] = "no server there"
    health.beat()
    assert health.readiness() == Answer("ready"), "it begins anew"
