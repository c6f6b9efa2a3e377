"""Functions of ours as Spark tasks."""

from __future__ import annotations

import functools
import hashlib
from typing import TYPE_CHECKING

import pytest

from slipstream.pipeline.errors import PipelineError
from slipstream.pipeline.tasks import check_executors, run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def digest(salt: bytes, order: bytes) -> bytes:
    return hashlib.sha256(salt + order).digest()


def test_answers_come_in_the_order_of_the_orders(spark: SparkSession) -> None:
    orders = [f"{number}".encode() for number in range(7)]
    answers = run_tasks(spark, functools.partial(digest, b"salt"), orders)
    assert answers == [hashlib.sha256(b"salt" + order).digest() for order in orders]


def test_no_orders_are_no_job(spark: SparkSession) -> None:
    assert run_tasks(spark, functools.partial(digest, b""), []) == []


def test_nothing_of_an_order_is_in_the_plan(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    from slipstream.pipeline.tasks import answers_of

    answers_of(spark, functools.partial(digest, b"s3cret-salt"), [b"s3cret-order"]).explain(extended=True)
    shown = capsys.readouterr().out
    assert "MapInArrow" in shown
    assert "s3cret" not in shown


def test_what_executors_lack_is_said_with_what_to_do(spark: SparkSession) -> None:
    with pytest.raises(PipelineError, match=r"cannot import no_such_library: .* PYSPARK_PYTHON"):
        check_executors(spark, ["msgspec", "no_such_library"])
