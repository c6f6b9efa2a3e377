"""Times in words."""

from __future__ import annotations

from slipstream.durations import duration_text


def test_a_duration_is_short_and_has_its_unit() -> None:
    assert [duration_text(ms) for ms in (5, 1_500, 90_000, 7_200_000, 864_000_000)] == [
        "5 ms",
        "1.5 s",
        "1.5 min",
        "2 h",
        "10 d",
    ]
