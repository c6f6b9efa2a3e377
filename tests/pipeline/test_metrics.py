from __future__ import annotations

import datetime as dt

import pytest
from prometheus_client import CollectorRegistry

from slipstream.pipeline.metrics import Counting
from slipstream.pipeline.queries import QUERIES
from slipstream.pipeline.stream import Told

AT = dt.datetime(2030, 1, 1, 12, tzinfo=dt.UTC)
SLIPS = QUERIES["slips"]


class Clock:
    def __init__(self) -> None:
        self.now = AT.timestamp() - 30

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def counting(registry: CollectorRegistry, clock: Clock) -> Counting:
    made = Counting(registry, clock)
    made.began([SLIPS])
    return made


def test_what_has_never_happened_is_0_from_the_beginning(registry: CollectorRegistry, counting: Counting) -> None:
    for table in SLIPS.tables:
        assert registry.get_sample_value("pipeline_rows_total", {"query": "slips", "table": table.name}) == 0
    assert registry.get_sample_value("pipeline_failed_queries_total", {"query": "slips"}) == 0
    assert registry.get_sample_value("pipeline_batch_seconds_count", {"query": "slips"}) == 0


def test_a_batch_is_counted_for_the_tables_that_it_has_changed(registry: CollectorRegistry, counting: Counting) -> None:
    for number in range(2):
        counting.told(Told("slips", number, 1.5, 1.0, {"slip_events": 10, "slip_runs": number, "quarantine": 0}, AT))

    def count(metric: str, table: str) -> float | None:
        return registry.get_sample_value(metric, {"query": "slips", "table": table})

    assert (count("pipeline_rows_total", "slip_events"), count("pipeline_batches_total", "slip_events")) == (20, 2)
    assert (count("pipeline_rows_total", "slip_runs"), count("pipeline_batches_total", "slip_runs")) == (1, 1)
    assert count("pipeline_batches_total", "quarantine") == 0
    assert registry.get_sample_value("pipeline_batch_seconds_sum", {"query": "slips"}) == 3
    assert registry.get_sample_value("pipeline_last_batch_timestamp_seconds", {"query": "slips"}) == AT.timestamp()


def test_a_table_is_fresh_while_all_is_read_and_grows_old_while_it_is_not(
    registry: CollectorRegistry, counting: Counting, clock: Clock
) -> None:
    def age() -> float | None:
        return registry.get_sample_value("pipeline_table_freshness_seconds", {"table": "slip_events"})

    clock.now += 5
    assert age() == 5, "nobody knows yet what there is to read"
    counting.told(Told("slips", 0, 1.5, 1.0, {"slip_events": 10}, AT))
    clock.now = AT.timestamp() + 7
    counting.behind("slips", 100, 3)
    assert age() == 7
    counting.behind("slips", 103, 0)
    assert age() == 0
    assert registry.get_sample_value("pipeline_lag_messages", {"query": "slips"}) == 0


def test_a_query_that_stops_is_counted(registry: CollectorRegistry, counting: Counting) -> None:
    counting.failed("slips")
    assert registry.get_sample_value("pipeline_failed_queries_total", {"query": "slips"}) == 1
