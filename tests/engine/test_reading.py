"""A slice whose records have moved is taken again, and not for ever."""

from __future__ import annotations

import asyncio
import threading

import pytest

from slipstream.broker import Unavailable
from slipstream.engine import read_slice
from slipstream.engine.reading import ATTEMPTS
from slipstream.record import LogUnreadable, Record
from slipstream.store import LogSlice, SliceGone


class Moving:
    """Its slices are gone so many times before one can be read."""

    def __init__(self, times: int, error: type[Exception] = SliceGone) -> None:
        self.times = times
        self.error = error
        self.taken_in: list[threading.Thread] = []
        self.read_in: list[threading.Thread] = []

    def take(self) -> LogSlice:
        self.taken_in.append(threading.current_thread())
        return LogSlice(7, 100, [], [Record(9, 0, b"", b"v")])

    def read(self, found: LogSlice) -> int:
        self.read_in.append(threading.current_thread())
        if len(self.read_in) <= self.times:
            raise self.error("it was merged")
        return found.first_index + len(found.records())


def test_a_slice_is_taken_here_and_read_elsewhere() -> None:
    log = Moving(0)
    assert asyncio.run(read_slice(log.take, log.read)) == 8
    assert log.taken_in == [threading.current_thread()]
    assert log.read_in != log.taken_in


def test_a_slice_that_is_gone_is_taken_again() -> None:
    log = Moving(ATTEMPTS - 1)
    assert asyncio.run(read_slice(log.take, log.read)) == 8
    assert len(log.taken_in) == ATTEMPTS


def test_what_moves_every_time_is_given_up() -> None:
    log = Moving(ATTEMPTS)
    with pytest.raises(Unavailable, match="try again"):
        asyncio.run(read_slice(log.take, log.read))
    assert len(log.taken_in) == ATTEMPTS


def test_what_cannot_be_read_is_not_tried_again() -> None:
    log = Moving(1, LogUnreadable)
    with pytest.raises(LogUnreadable):
        asyncio.run(read_slice(log.take, log.read))
    assert len(log.taken_in) == 1
