from __future__ import annotations

import datetime as dt

from slipstream.broker import Envelope


def test_a_deadline_keeps_its_millisecond() -> None:
    start = dt.datetime(1970, 1, 1, 3, tzinfo=dt.UTC)  # where a float has the most digits to be wrong in
    first = Envelope(deadline=start).deadline_ms
    assert first is not None
    for ms in range(5_000):
        assert Envelope(deadline=start + dt.timedelta(milliseconds=ms)).deadline_ms == first + ms
