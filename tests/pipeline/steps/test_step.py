"""The declaration of a step on Spark."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from slipstream.bus import InvalidArgument
from slipstream.pipeline.steps import InvalidStep, SparkStep, spark_step

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@spark_step("upper", topic="internal.upper.v1", rows=10, timeout="5s")
def upper(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Shouts."""
    return batch


@spark_step("rank")
def rank(frame: DataFrame) -> DataFrame:
    return frame


def test_it_says_what_it_is_and_can_still_be_called() -> None:
    assert (upper.step_id, upper.topic, upper.group, upper.kind) == (
        "upper",
        "internal.upper.v1",
        "step-upper",
        "arrow",
    )
    assert (upper.rows, upper.timeout_s, upper.__doc__) == (10, 5.0, "Shouts.")
    batch = pa.record_batch({"row": [1]})
    assert upper(batch) is batch


def test_a_frame_is_told_by_an_annotation_that_only_type_checkers_see() -> None:
    assert (rank.kind, rank.topic) == ("frame", "internal.rank.v1")


def test_without_annotations_it_is_said() -> None:
    def plain(batch):  # type: ignore[no-untyped-def]
        return batch

    assert spark_step("x", kind="arrow")(plain).kind == "arrow"
    with pytest.raises(InvalidStep, match="Arrow batches or DataFrames"):
        spark_step("x")(plain)


def test_it_travels_by_its_name() -> None:
    sent = pickle.dumps(upper)
    assert pickle.loads(sent) is upper
    assert len(sent) < 200


def test_one_without_a_name_travels_with_its_function() -> None:
    from pyspark import cloudpickle

    @spark_step("inner", schema=pa.schema([("n", pa.int64())]))
    def inner(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch

    again = pickle.loads(cloudpickle.dumps(inner))  # type: ignore[no-untyped-call]
    assert isinstance(again, SparkStep)
    assert (again.step_id, again.schema) == ("inner", inner.schema)


async def awaits(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"step_id": ""}, "id of the step"),
        ({"step_id": len}, "id of the step"),
        ({"step_id": "router"}, "router's"),
        ({"step_id": "x", "rows": 0}, "at least one"),
        ({"step_id": "x", "schema": pa.schema([("status", pa.string())])}, "another meaning"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidStep, match=why):
        spark_step(**arguments)


def test_a_function_that_awaits_is_refused() -> None:
    with pytest.raises(InvalidStep, match="await"):
        spark_step("x")(awaits)


def test_a_topic_that_is_no_name_is_refused() -> None:
    with pytest.raises(InvalidArgument):
        spark_step("x", topic="no topic")


def test_a_frame_has_no_timeout() -> None:
    with pytest.raises(InvalidStep, match="timeout"):
        spark_step("x", timeout=5, kind="frame")(upper.function)
