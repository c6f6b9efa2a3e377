from __future__ import annotations

import pyarrow as pa
from prometheus_client import CollectorRegistry

from slipstream.pipeline.steps import spark_step
from slipstream.pipeline.steps.metrics import Counting
from slipstream.pipeline.steps.runner import Told


@spark_step("embed")
def embed(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def test_windows_are_counted_as_attempts_errors_and_lag() -> None:
    registry = CollectorRegistry()
    counting = Counting([embed], registry)
    counting.told(Told("embed", {"OK": 7, "SKIP": 1, "ERROR": 2, "returned": 5}, 40))
    counting.told(Told("embed", {"OK": 1}, 3))
    assert registry.get_sample_value("step_attempts_total", {"step": "embed"}) == 11
    assert registry.get_sample_value("step_errors_total", {"step": "embed", "code": "on_spark"}) == 2
    labels = {"driver": "http", "topic": "internal.embed.v1", "group": "step-embed"}
    assert registry.get_sample_value("consumer_lag", labels) == 3
