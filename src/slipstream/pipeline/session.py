"""The Spark session of the pipeline: on this machine unless told otherwise, and set up for small batches."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from slipstream.pipeline.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from slipstream.pipeline.settings import PipelineSettings

_CHECKPOINTING = "org.apache.spark.sql.execution.streaming.checkpointing"

STREAMING = {
    "spark.sql.session.timeZone": "UTC",
    # A small batch costs 230 ms as Spark comes, and 150 ms with these two.
    "spark.sql.streaming.checkpointFileManagerClass": f"{_CHECKPOINTING}.FileSystemBasedCheckpointFileManager",
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    # What is planned again while it runs is small here, and planning takes longer than running it.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.streaming.numRecentProgressUpdates": "5",
}

LOCAL = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


@contextlib.contextmanager
def spark_session(settings: PipelineSettings, extra: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """Stopped at the end, with the Java it runs in."""
    os.environ["JAVA_HOME"] = str(find_java())
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.sql import SparkSession  # noqa: PLC0415 - an extra, and it takes a second

    with tempfile.TemporaryDirectory(prefix="slipstream-spark-") as scratch:
        options = {
            **STREAMING,
            **(LOCAL if settings.master.startswith("local") else {}),
            "spark.sql.shuffle.partitions": str(settings.shuffle_partitions),
            "spark.driver.memory": settings.driver_memory,
            "spark.sql.warehouse.dir": scratch,
            **(extra or {}),
        }
        builder = SparkSession.builder.appName("slipstream pipeline").master(settings.master)
        for name, value in options.items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        spark.sparkContext.setLogLevel("ERROR")
        try:
            yield spark
        finally:
            spark.stop()
