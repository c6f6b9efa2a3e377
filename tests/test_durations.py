"""Times in words."""

from __future__ import annotations

from slipstream.durations import about_text, duration_text


def test_a_duration_is_short_and_has_its_unit() -> None:
    assert [duration_text(ms) for ms in (5, 1_500, 90_000, 7_200_000, 864_000_000)] == [
        "5 ms",
        "1.5 s",
        "1.5 min",
        "2 h",
        "10 d",
    ]


def test_in_a_sentence_it_is_whole() -> None:
    assert [about_text(ms) for ms in (5, 1_900, 119_999, 124_200, 90_000_000, 200_000_000)] == [
        "5 ms",
        "1 s",
        "1 min",
        "2 min",
        "25 h",
        "2 days",
    ]
