from __future__ import annotations

from slipstream.engine.clock import Clock


class Machine:
    """A machine whose clock can be set."""

    def __init__(self) -> None:
        self.wall = 1_000.0
        self.steady = 5.0
        self.clock = Clock(lambda: self.wall, lambda: self.steady)

    def passes(self, seconds: float) -> int:
        self.wall += seconds
        self.steady += seconds
        return self.clock.now_ms()


def test_it_is_the_time_of_day() -> None:
    machine = Machine()
    assert machine.passes(0) == 1_000_000
    assert machine.passes(1.5) == 1_001_500


def test_it_follows_a_jump_forward() -> None:
    machine = Machine()
    machine.passes(0)
    machine.wall += 3_600
    assert machine.passes(1) == 4_601_000


def test_set_back_it_goes_on_at_half_speed_until_the_time_of_day_has_caught_up() -> None:
    """Standing still, as it would if it only never went back, no lease would run out for as long."""
    machine = Machine()
    machine.passes(0)
    machine.wall -= 10
    assert machine.passes(0) == 1_000_000
    assert machine.passes(2) == 1_001_000
    assert machine.passes(2) == 1_002_000
    assert machine.passes(16) == 1_010_000
    assert machine.passes(3) == 1_013_000, "caught up: as fast as the clock again"


def test_asked_often_it_loses_nothing() -> None:
    machine = Machine()
    machine.passes(0)
    machine.wall -= 100
    for _ in range(10_000):
        machine.passes(0.0005)
    assert 1_002_490 <= machine.clock.now_ms() <= 1_002_500
