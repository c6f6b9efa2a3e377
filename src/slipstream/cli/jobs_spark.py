"""Spark for the commands of `slipstream jobs`: a worker with `--engine spark`, and what goes wrong with it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from slipstream.cli.jobs_process import event_loop_run
from slipstream.cli.output import UNREACHABLE, Output

if TYPE_CHECKING:
    from slipstream.health import Health
    from slipstream.jobs.settings import JobSettings
    from slipstream.pipeline.settings import PipelineSettings

SPARK_OPTIONS = ("master", "remote", "spark_conf")


def hush_java() -> None:
    """Its bridge tells of every connection that it closes."""
    logging.getLogger("py4j").setLevel(logging.WARNING)


def taken_out(given: dict[str, Any]) -> dict[str, Any]:
    """The options of Spark, which are settings of the pipeline, out of those of a command."""
    return {name: value for name in SPARK_OPTIONS if (value := given.pop(name)) is not None}


def spark_settings(given: Mapping[str, Any]) -> PipelineSettings:
    from slipstream.pipeline.settings import load_settings  # noqa: PLC0415

    return load_settings(given)


def place(settings: PipelineSettings) -> str:
    """Where Spark is, as it may be shown."""
    from slipstream.pipeline.spark_place import shown  # noqa: PLC0415

    return escape(shown(settings.remote) if settings.remote else settings.master)


def spark_exit_code(error: Exception) -> int | None:
    from slipstream.pipeline.errors import InvalidPipeline, PipelineError, SparkUnreachable  # noqa: PLC0415

    codes: list[tuple[type[Exception], int]] = [(InvalidPipeline, 2), (SparkUnreachable, UNREACHABLE)]
    return next(
        (code for kind, code in codes if isinstance(error, kind)), 1 if isinstance(error, PipelineError) else None
    )


def work_on_spark(settings: JobSettings, given: Mapping[str, Any], output: Output, stop: str, health: Health) -> None:
    """Until SIGTERM or Ctrl-C."""
    from slipstream.health import beating  # noqa: PLC0415
    from slipstream.pipeline.downloads.on_spark import (  # noqa: PLC0415
        session_for_downloads,
        slots_of,
        working_on_spark,
    )

    found = spark_settings(given)
    output.note(f"[dim]starting Spark ({place(found)})[/]")
    health.starting("Spark is being started")
    with session_for_downloads(settings, found) as spark:
        slots = slots_of(spark, settings)

        async def work() -> None:
            async with beating(health), working_on_spark(settings, spark, slots) as bus:
                what = f"a worker of {settings.concurrency} downloads at a time on {slots} slots of Spark"
                output.note(f"[dim]{what}, on the {bus.driver} bus; {stop}[/]")
                health.ready(lambda: bus.trouble)
                await bus.until_stopped()
                health.stopping()

        event_loop_run(work())
