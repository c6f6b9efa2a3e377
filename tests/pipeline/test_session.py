"""The session of Spark."""

from __future__ import annotations

import logging
import logging.config
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession


@pytest.mark.parametrize(
    "query",
    [
        lambda spark: spark.sql("SELECT CAST('a secret' AS INT)"),
        lambda spark: spark.createDataFrame([("a secret",)], "word string").selectExpr("CAST(word AS INT)"),
        lambda spark: spark.createDataFrame([("a secret",)], ["word"]).select(functions.col("word").cast("int")),
    ],
    ids=["SQL", "an expression", "columns"],
)
def test_what_spark_raises_is_raised_and_not_said_whoever_sets_up_logs(
    spark: SparkSession,
    query: Callable[[SparkSession], DataFrame],
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A server in the same process may: it enables every logger there is."""
    logging.config.dictConfig({"version": 1, "disable_existing_loggers": False})
    with pytest.raises(PySparkException, match="CAST_INVALID_INPUT"):
        query(spark).collect()
    assert "a secret" not in capfd.readouterr().err
    assert "a secret" not in caplog.text


def test_java_has_room_for_the_code_that_small_batches_make(spark: SparkSession) -> None:
    # With the first compiler alone it is 48 MB by default: 700 batches of a busy topic filled them, and Java ended.
    assert spark._jvm is not None
    pools = spark._jvm.java.lang.management.ManagementFactory.getMemoryPoolMXBeans()
    room = {pool.getName(): pool.getUsage().getMax() for pool in pools if pool.getName().startswith("Code")}
    assert sum(room.values()) >= 240 << 20
    # What every class needs has its own room. Without, Java ends when the rest has taken all; with it, it goes on.
    assert room["CodeHeap 'non-nmethods'"] > 0
