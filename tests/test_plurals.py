"""Numbers of things in words."""

from __future__ import annotations

from slipstream.plurals import counted


def test_one_thing_is_singular() -> None:
    assert [counted(count, "message") for count in (0, 1, 2_000)] == ["0 messages", "1 message", "2,000 messages"]
