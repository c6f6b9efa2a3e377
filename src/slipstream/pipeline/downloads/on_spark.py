"""A worker whose downloads run on Spark, from a session to the streams."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slipstream.bus import Bus, open_bus
from slipstream.jobs.client import JobsClient
from slipstream.jobs.config import load_config
from slipstream.jobs.settings import JobSettings
from slipstream.pipeline.downloads.backfill import Backfill, Source, Standing
from slipstream.pipeline.downloads.station import run_bundle
from slipstream.pipeline.downloads.submission import submit_slices
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


class Backfilling:
    """Both halves of it: jobs are submitted, and a worker does them."""

    def __init__(self, bus: Bus, client: JobsClient, backfill: Backfill) -> None:
        self._bus = bus
        self._client = client
        self._backfill = backfill

    @property
    def standing(self) -> Standing:
        return self._backfill.standing

    async def run(self, show: Callable[[Standing], None]) -> bool:
        """Until every row has come to its end, or SIGTERM or Ctrl-C; returns which."""
        running = asyncio.create_task(self._backfill.run(self._client, show))
        stopping = asyncio.create_task(self._bus.until_stopped())
        try:
            await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                running.result()
                return True
            return False
        finally:
            for task in (running, stopping):
                task.cancel()
            await asyncio.gather(running, stopping, return_exceptions=True)


@contextlib.asynccontextmanager
async def backfilling(
    settings: JobSettings, source: Source, spark: SparkSession, slots: int, **bus_settings: Any
) -> AsyncIterator[Backfilling]:
    """Example:
    async with backfilling(settings, source, spark, slots) as found:
        await found.run(print)
    """
    run_orders = functools.partial(run_tasks, spark, submit_slices)
    async with (
        working_on_spark(settings, spark, slots, **bus_settings) as bus,
        JobsClient(source.service, source.token) as client,
    ):
        yield Backfilling(bus, client, Backfill(settings, source, run_orders, slots))


def _run_order(spark: SparkSession, order: bytes) -> bytes:
    return run_tasks(spark, run_bundle, [order])[0]
