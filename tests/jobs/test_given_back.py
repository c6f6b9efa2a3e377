"""What is known of tasks that were given back."""

from __future__ import annotations

import pytest

from slipstream.jobs import given_back
from slipstream.jobs.given_back import NOTHING, Attempts, Past


def test_attempts_are_known_once() -> None:
    attempts = Attempts()
    attempts.remember("a", Past(3, 17))
    assert [attempts.known(name) for name in "aab"] == [Past(3, 17), NOTHING, NOTHING]


def test_the_oldest_is_forgotten_where_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(given_back, "GIVEN_BACK_MAX", 2)
    attempts = Attempts()
    for name in "abc":
        attempts.remember(name, Past(1))
    assert [attempts.known(name).failed for name in "abc"] == [0, 1, 1]
