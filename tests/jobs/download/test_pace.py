"""Downloads that only drip are given up."""

from __future__ import annotations

import pytest

from slipstream.jobs.download.pace import Pace
from slipstream.jobs.failure import Code, TaskFailed


def test_a_drip_is_given_up_when_the_while_is_over() -> None:
    pace = Pace(100, 10_000)
    for _ in range(9):
        pace.arrived(50, 1.0)
    with pytest.raises(TaskFailed) as caught:
        pace.arrived(50, 1.0)
    assert caught.value.code is Code.DOWNLOAD_TIMEOUT
    assert caught.value.is_retryable


def test_each_while_counts_by_itself() -> None:
    pace = Pace(100, 10_000)
    pace.arrived(1_000_000, 10.0)
    with pytest.raises(TaskFailed):
        pace.arrived(10, 10.0)


def test_one_that_is_fast_enough_goes_on() -> None:
    pace = Pace(100, 1000)
    for _ in range(100):
        pace.arrived(101, 1.0)


def test_zero_is_no_limit() -> None:
    pace = Pace(0, 1)
    pace.arrived(1, 1e6)
