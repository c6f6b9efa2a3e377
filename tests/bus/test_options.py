"""Options of a subscription, and the pauses they mean."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from slipstream.bus import Backoff, InvalidArgument, SubscribeOptions


def test_pauses_double_up_to_the_longest() -> None:
    options = SubscribeOptions(backoff=Backoff(first=1, longest=60))
    assert [options.pause(failures) for failures in range(1, 9)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert options.pause(10**9) == 60


def test_pauses_can_be_listed() -> None:
    options = SubscribeOptions(backoff=[1, 5, 10])
    assert [options.pause(failures) for failures in (1, 2, 3, 4, 99)] == [1, 5, 10, 10, 10]


def test_durations_can_be_timedeltas() -> None:
    backoff = Backoff(first=dt.timedelta(milliseconds=500), longest=dt.timedelta(minutes=1))
    assert backoff.pause(2) == 1
    SubscribeOptions(ack_deadline=dt.timedelta(seconds=5), extend_for=dt.timedelta(0)).check()


def test_the_last_attempt_is_max_deliver() -> None:
    three = SubscribeOptions(max_deliver=3)
    assert [three.is_exhausted(attempt) for attempt in (1, 2, 3, 4)] == [False, False, True, True]
    assert not SubscribeOptions(max_deliver=0).is_exhausted(10**6)


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_in_flight": 0},
        {"max_deliver": -1},
        {"ack_deadline": 0},
        {"extend_for": -1},
        {"backoff": []},
        {"backoff": [1, -1]},
        {"backoff": Backoff(first=-1)},
        {"backoff": Backoff(factor=0.5)},
        {"backoff": Backoff(factor=float("nan"))},
        {"backoff": Backoff(factor=1e300)},
        {"backoff": Backoff(longest=float("inf"))},
        {"backoff": [float("nan")]},
        {"backoff": ["1"]},
        {"backoff": 5},
        {"ack_deadline": float("nan")},
        {"ack_deadline": float("inf")},
        {"ack_deadline": "soon"},
        {"extend_for": float("nan")},
        {"max_in_flight": 2.5},
        {"max_in_flight": "8"},
        {"max_deliver": None},
    ],
)
def test_what_could_not_work_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        SubscribeOptions(**wrong).check()
