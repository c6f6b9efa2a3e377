"""A worker whose downloads run on Spark, from a session to the streams."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slipstream.bus import Bus, open_bus
from slipstream.jobs.config import load_config
from slipstream.jobs.settings import JobSettings
from slipstream.pipeline.downloads.station import run_bundle
from slipstream.pipeline.downloads.worker import SparkWorker
from slipstream.pipeline.session import spark_session
from slipstream.pipeline.settings import PipelineSettings
from slipstream.pipeline.tasks import NEEDED, check_executors, run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NEEDED_BY_DOWNLOADS = (*NEEDED, "google.protobuf", "obstore", "prometheus_client", "yarl")


@contextlib.contextmanager
def session_for_downloads(settings: JobSettings, spark_settings: PipelineSettings) -> Iterator[SparkSession]:
    """Raises PipelineError, also where executors lack what downloads need."""
    with spark_session(spark_settings, Path(settings.spark_log)) as spark:
        check_executors(spark, NEEDED_BY_DOWNLOADS)
        yield spark


def slots_of(spark: SparkSession, settings: JobSettings) -> int:
    """How many bundles run at a time. By default as many as Spark has cores: so many parts it makes of a frame, also
    where the driver is elsewhere and cannot be asked."""
    if settings.spark_slots:
        return settings.spark_slots
    from pyspark.sql.functions import spark_partition_id  # noqa: PLC0415

    return max(1, spark.range(100_000).select(spark_partition_id().alias("part")).distinct().count())


@contextlib.asynccontextmanager
async def working_on_spark(
    settings: JobSettings, spark: SparkSession, slots: int, **bus_settings: Any
) -> AsyncIterator[Bus]:
    """On a bus that it shares with the service and with other workers.

    Example:
        async with working_on_spark(settings, spark, slots_of(spark, settings)) as bus:
            await bus.until_stopped()
    """
    config = load_config(settings.config)
    async with open_bus(**bus_settings) as bus:
        worker = SparkWorker(settings, config, functools.partial(_run_order, spark), slots)
        async with worker.running(bus):
            yield bus


def _run_order(spark: SparkSession, order: bytes) -> bytes:
    return run_tasks(spark, run_bundle, [order])[0]
