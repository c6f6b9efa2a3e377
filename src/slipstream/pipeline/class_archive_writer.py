"""A process that starts Spark, has it make tables of a few messages, and ends its Java, which writes the archive."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from pyspark import SparkContext

from slipstream.client import Client
from slipstream.pipeline.class_archive import WRITE_TIMEOUT_S, archive_for
from slipstream.pipeline.java import find_java
from slipstream.pipeline.queries import queries_of
from slipstream.pipeline.run import Pipeline
from slipstream.pipeline.session import JAVA_OPTIONS, LOCAL, spark_session
from slipstream.pipeline.settings import load_settings
from slipstream.testing import MemoryBroker


def write(to: Path) -> None:
    writing = archive_for(find_java()).writing_options(to)
    with tempfile.TemporaryDirectory(prefix="slipstream-classes-") as folder, MemoryBroker() as broker:
        settings = load_settings({"url": broker.url, "tables": folder, "master": "local[2]"}, {})
        with Client(broker.url) as client:
            for topic in (f"{settings.namespace}.jobs.tasks", settings.slip_topic):
                client.create_topic(topic)
                client.produce(topic, "something")
        with spark_session(settings, extra={JAVA_OPTIONS: f"{LOCAL[JAVA_OPTIONS]} {writing}"}) as spark:
            Pipeline(spark, settings).run(queries_of(()), once=True)
        _end_java()


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
