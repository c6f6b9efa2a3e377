"""The Spark session of the pipeline: on this machine unless told otherwise, and set up for small batches."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
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
    "spark.python.daemon.module": "slipstream.pipeline.daemon",
    # Between Java and Python, an eighth less to do than over TCP.
    "spark.python.unix.domain.socket.enabled": "true",
}

LOCAL = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Tasks are Python's, and what is left is small: Java's second compiler takes longer than it saves.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
}


@contextlib.contextmanager
def spark_session(
    settings: PipelineSettings, said: Path | None = None, extra: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """Stopped at the end. What its Java says goes to the file `said`, if there is one: in a terminal it would be
    in the way, and when something is wrong somebody wants to read it."""
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
        with _errors_to(said):
            spark = builder.getOrCreate()
        try:
            yield spark
        finally:
            spark.stop()


@contextlib.contextmanager
def _errors_to(path: Path | None) -> Iterator[None]:
    """For what is started meanwhile: PySpark starts its Java with our own stderr, and offers no other."""
    if path is None:
        yield
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    ours = os.dup(2)
    with path.open("a") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(ours, 2)
        os.close(ours)
