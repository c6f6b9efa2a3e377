"""Steps for tests, in a module that Spark's Python processes can import."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from slipstream.pipeline.steps import spark_step
from slipstream.slip.errors import Pause

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FIELDS = pa.schema([("n", pa.int64()), ("poison", pa.string())])


@spark_step("embed", schema=FIELDS)
def embed(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Squares `n`; does what `poison` says."""
    poison = set(batch.column("poison").to_pylist())
    if "raise" in poison:
        raise ValueError("a poisoned row")
    if "die" in poison:
        os._exit(17)
    if "pause" in poison:
        raise Pause("the model is away", seconds=3600)
    return pa.record_batch({"row": batch.column("row"), "square": pc.multiply(batch.column("n"), batch.column("n"))})


@spark_step("embed", schema=FIELDS)
def always_dies(batch: pa.RecordBatch) -> pa.RecordBatch:
    os._exit(17)


@spark_step("embed", schema=FIELDS)
def grows(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Of the third message it makes more than a server takes."""
    big = ["x" * 20_000_000 if n == 3 else "x" for n in batch.column("n").to_pylist()]
    return pa.record_batch({"row": batch.column("row"), "big": big})


@spark_step("embed", schema=FIELDS)
def frame(rows: DataFrame) -> DataFrame:
    """The same with Spark's own functions; leaves out what `poison` says, and doubles it."""
    from pyspark.sql import functions as f

    kept = rows.where("poison is null or poison <> 'drop'")
    doubled = kept.where("poison = 'double'")
    squared = kept.unionByName(doubled).withColumn("square", f.expr("n * n"))
    raising = f.when(f.col("poison") == "raise", f.raise_error(f.lit("a poisoned row"))).otherwise(f.lit(None))
    return squared.select("row", "square", raising.cast("string").alias("notes"))


@spark_step("embed")
def quotes(rows: DataFrame) -> DataFrame:
    """Fails with words that quote the payload."""
    cast = "cast(get_json_object(payload, '$.text') as int) as number"
    return rows.selectExpr("row", cast)


@spark_step("noop")
def noop(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch
