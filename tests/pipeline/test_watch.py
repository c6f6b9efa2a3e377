from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from slipstream.pipeline.queries import QUERIES, Query
from slipstream.pipeline.stream import Told
from slipstream.pipeline.watch import Watch, Watches


class Heard(Watch):
    def __init__(self) -> None:
        self.all: list[object] = []

    def began(self, queries: Sequence[Query]) -> None:
        self.all.append([query.name for query in queries])

    def started(self) -> None:
        self.all.append("started")

    def turned(self) -> None:
        self.all.append("turned")

    def told(self, told: Told) -> None:
        self.all.append(told)

    def behind(self, query: str, read: int, lag: int) -> None:
        self.all.append((query, read, lag))

    def failed(self, query: str) -> None:
        self.all.append(query)


def test_each_is_told_everything() -> None:
    one, other = Heard(), Heard()
    watches = Watches(one, other)
    told = Told("slips", 1, 1.0, 0.5, {}, dt.datetime(2030, 1, 1, tzinfo=dt.UTC))
    watches.began([QUERIES["slips"]])
    watches.started()
    watches.turned()
    watches.told(told)
    watches.behind("slips", 7, 2)
    watches.failed("slips")
    assert one.all == other.all == [["slips"], "started", "turned", told, ("slips", 7, 2), "slips"]
