"""A process that starts Spark, has it do a little of all that we do, and ends its Java, which writes the archive."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import SparkContext

from slipstream.pipeline.class_archive import WRITE_TIMEOUT_S, archive_for
from slipstream.pipeline.java import find_java
from slipstream.pipeline.session import JAVA_OPTIONS, LOCAL, spark_session
from slipstream.pipeline.settings import load_settings

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


def write(to: Path) -> None:
    writing = archive_for(find_java()).writing_options(to)
    settings = load_settings({"master": "local[2]"}, {})
    with tempfile.TemporaryDirectory(prefix="slipstream-classes-") as folder:
        with spark_session(settings, extra={JAVA_OPTIONS: f"{LOCAL[JAVA_OPTIONS]} {writing}"}) as spark:
            _work(spark, Path(folder))
        _end_java()


def _work(spark: SparkSession, folder: Path) -> None:
    """Tasks in Python, files, SQL, and a query over a stream: what is loaded for them is what is kept."""
    numbers = spark.range(1_000).mapInArrow(_same, "id long").selectExpr("id", "id % 7 AS part", "string(id) AS text")
    numbers.write.partitionBy("part").parquet(str(folder / "numbers"))
    found = spark.read.parquet(str(folder / "numbers"))
    found.createOrReplaceTempView("numbers")
    counts = spark.sql("SELECT part, count(*) AS count, max(text) AS last FROM numbers WHERE id > 10 GROUP BY part")
    found.join(counts, "part", "left").orderBy("id").toArrow()
    stream = spark.readStream.schema(found.schema).parquet(str(folder / "numbers"))
    query = stream.writeStream.foreachBatch(_count).option("checkpointLocation", str(folder / "checkpoint"))
    query.trigger(availableNow=True).start().awaitTermination()


def _same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches


def _count(batch: DataFrame, number: int) -> None:
    batch.groupBy("part").count().toArrow()


def _end_java() -> None:
    """It ends with its stdin, when this process does; here somebody waits for what it writes then."""
    gateway = SparkContext._gateway
    assert gateway is not None, "Spark was started"
    gateway.shutdown()
    java = gateway.proc
    java.stdin.close()
    java.wait(WRITE_TIMEOUT_S)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
