"""What the process that reads tables knows by itself."""

from __future__ import annotations

from slipstream.console.tables_worker import query_lag


def test_what_a_query_has_not_read() -> None:
    reached = {"orders": {"0": 10, "1": 12}, "parcels": {"0": 5}}
    assert query_lag(reached, {}) is None
    assert query_lag(reached, {"elsewhere": {0: 9}}) is None
    assert query_lag(reached, {"orders": {0: 10, 1: 12}, "parcels": {0: 5}}) == 0
    assert query_lag(reached, {"orders": {0: 10, 1: 15}, "parcels": {0: 9}}) == 3 + 4
    assert query_lag(reached, {"orders": {0: 30, 1: 31}}) == 21, "offsets count per topic, not per partition"
    assert query_lag(reached, {"orders": {0: 10, 1: 12, 2: 4}}) == 4, "a partition that is new"
