"""The Spark session of the pipeline: on this machine unless told otherwise, and set up for small batches."""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from slipstream.pipeline.class_archive import archive_for
from slipstream.pipeline.errors import SparkEnded
from slipstream.pipeline.java import find_java
from slipstream.pipeline.shipping import pack
from slipstream.pipeline.spark_place import check_place, is_local, options_of
from slipstream.pipeline.tasks import check_executors
from slipstream.pipeline.worker_python import worker_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from slipstream.pipeline.settings import PipelineSettings

_CHECKPOINTING = "org.apache.spark.sql.execution.streaming.checkpointing"

JAVA_OPTIONS = "spark.driver.defaultJavaOptions"
"""Those of `spark.driver.extraJavaOptions` come behind them, and are whoever's who wants some."""

ENDING_S = 5.0
"""How long a Java whose connections broke may take to be gone."""

SESSION = {"spark.sql.session.timeZone": "UTC"}

STREAMING = {
    **SESSION,
    # A small batch costs 230 ms as Spark comes, and 150 ms with these two.
    "spark.sql.streaming.checkpointFileManagerClass": f"{_CHECKPOINTING}.FileSystemBasedCheckpointFileManager",
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    # What is planned again while it runs is small here, and planning takes longer than running it.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.streaming.numRecentProgressUpdates": "5",
    # Between Java and Python, an eighth less to do than over TCP.
    "spark.python.unix.domain.socket.enabled": "true",
}

LOCAL = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Tasks are Python's, and what is left is small: Java's second compiler takes longer than it saves. Without it
    # Java has room for 48 MB of compiled code, which the classes that Spark makes fill in minutes of small batches.
    # Then there is none for the little that every class needs, and Java ends. So there is the room that it has with
    # both, and that little has its own: where the rest is full, code runs that is not compiled.
    JAVA_OPTIONS: "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+SegmentedCodeCache",
    # Elsewhere it starts before our package is there.
    "spark.python.daemon.module": "slipstream.pipeline.daemon",
}


@contextlib.contextmanager
def spark_session(
    settings: PipelineSettings, said: Path | None = None, extra: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """Stopped at the end. What its Java says goes to the file `said`, if there is one: in a terminal it would be
    in the way, and when something is wrong somebody wants to read it. Executors that are not of this machine are sent
    our package. Raises InvalidPipeline, SparkUnreachable, and SparkEnded where its Java has ended meanwhile."""
    check_place(settings.master, settings.remote)
    _hush_pyspark()
    logging.getLogger("py4j").setLevel(logging.WARNING)  # which tells of every connection that it closes
    given = {**(extra or {}), **options_of(settings.spark_conf)}
    with tempfile.TemporaryDirectory(prefix="slipstream-spark-") as scratch:
        spark = _connected(settings, given) if settings.remote else _started(settings, given, scratch, said)
        try:
            if settings.remote:
                spark.addArtifacts(str(pack(Path(scratch))), pyfile=True)
                check_executors(spark)
            elif not is_local(settings.master):
                spark.sparkContext.addPyFile(str(pack(Path(scratch))))
                check_executors(spark)
            yield spark
        except Exception as error:
            if (code := _java_exit_code(spark, error)) is not None:
                where = f"; why is in {said}" if said is not None else ""
                raise SparkEnded(f"Java, in which Spark runs, has ended with exit code {code}{where}") from error
            raise
        finally:
            if _java_exit_code(spark) is None:
                spark.stop()


def _java_exit_code(spark: SparkSession, error: Exception | None = None) -> int | None:
    """None: it runs, or is not ours. A connection that broke tells of its end before the system does."""
    gateway = getattr(getattr(spark, "_sc", None), "_gateway", None)  # a session of Spark Connect has none
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if process is None:
        return None
    if isinstance(error, ConnectionError) or type(error).__module__.startswith("py4j"):
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(ENDING_S)
    return process.poll()


def _hush_pyspark() -> None:
    """PySpark says what it raises, with all stacks and what stood in the rows, to stderr, in JSON. Its loggers
    for that get a level above all, and are not disabled: whoever sets up logs later, as uvicorn does, enables all."""
    from pyspark.logger import PySparkLogger  # noqa: PLC0415 - an extra

    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)


def _started(settings: PipelineSettings, given: Mapping[str, str], scratch: str, said: Path | None) -> SparkSession:
    """With a driver in this process."""
    java = find_java()
    os.environ["JAVA_HOME"] = str(java)
    local = is_local(settings.master)
    if named := given.get("spark.pyspark.python"):  # which only spark-submit would look at
        os.environ["PYSPARK_PYTHON"] = named
    elif local and "PYSPARK_PYTHON" not in os.environ:
        os.environ["PYSPARK_PYTHON"] = worker_python()
    from pyspark.sql import SparkSession  # noqa: PLC0415 - an extra, and it takes a second

    options = {
        **STREAMING,
        **(LOCAL if local else {}),
        JAVA_OPTIONS: f"{LOCAL[JAVA_OPTIONS] if local else ''} {archive_for(java).options}".strip(),
        "spark.sql.shuffle.partitions": str(settings.shuffle_partitions),
        "spark.driver.memory": settings.driver_memory,
        "spark.sql.warehouse.dir": scratch,
        **given,
    }
    builder = SparkSession.builder.appName("slipstream pipeline").master(settings.master)
    for name, value in options.items():
        builder = builder.config(name, value)
    with _errors_to(said):
        return builder.getOrCreate()


def _connected(settings: PipelineSettings, given: Mapping[str, str]) -> SparkSession:
    """With a driver elsewhere, which has its own options, except for those of a session."""
    from pyspark.sql import SparkSession  # noqa: PLC0415

    spark = SparkSession.builder.remote(settings.remote).create()
    options = {**SESSION, "spark.sql.shuffle.partitions": str(settings.shuffle_partitions), **given}
    for name, value in options.items():
        spark.conf.set(name, value)
    return spark


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
