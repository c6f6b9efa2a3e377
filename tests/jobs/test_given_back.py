"""What is known of tasks that were given back."""

from __future__ import annotations

import pytest

from slipstream.jobs import given_back
from slipstream.jobs.given_back import Attempts


def test_attempts_are_known_once() -> None:
    attempts = Attempts()
    attempts.remember("a", 3)
    assert (attempts.known("a"), attempts.known("a"), attempts.known("b")) == (3, 0, 0)


def test_the_oldest_is_forgotten_where_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(given_back, "GIVEN_BACK_MAX", 2)
    attempts = Attempts()
    for name in "abc":
        attempts.remember(name, 1)
    assert [attempts.known(name) for name in "abc"] == [0, 1, 1]
