"""`slipstream jobs backfill`: a table of resources, downloaded on Spark."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import rich_click as click
from rich.markup import escape
from rich.progress import Progress, TextColumn, TimeRemainingColumn

from slipstream.cli.extras import need_extras
from slipstream.cli.jobs_process import check_bus, event_loop_run
from slipstream.cli.jobs_run import (
    STOP,
    concurrency_option,
    config_options,
    exit_code_on_spark,
    job_settings,
)
from slipstream.cli.jobs_service import DEFAULT_URL
from slipstream.cli.jobs_service import exit_code as service_exit_code
from slipstream.cli.jobs_spark import hush_java, place, spark_settings, taken_out
from slipstream.cli.jobs_watch import Bar, Counts, Rate
from slipstream.cli.observing import logging_options, observed
from slipstream.cli.output import EXIT_CODES, Output, answering
from slipstream.cli.spark_options import spark_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from slipstream.jobs.settings import JobSettings
    from slipstream.pipeline.downloads.backfill import Source, Standing

LINE_EVERY_S = 5.0


@click.command(epilog=EXIT_CODES)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--type", "job_type", default="", help="Of which type the jobs are, where the file has no job_type.")
@click.option("--tenant", default="", help="For whom they are, where the file has no tenant.")
@click.option("--rows", "backfill_rows", type=click.IntRange(1), help="Rows in a job; also JOBS_BACKFILL_ROWS.")
@click.option(
    "--service",
    envvar="JOBS_URL",
    default=DEFAULT_URL,
    show_default=True,
    help="Address of the service, as executors reach it; also JOBS_URL.",
)
@click.option("--token", envvar="JOBS_TOKEN", default="", help="What the service asks for; also JOBS_TOKEN.")
@config_options
@concurrency_option
@spark_options
@logging_options("warning")
def backfill(file: Path, job_type: str, tenant: str, service: str, token: str, **given: Any) -> None:
    """Submit and download all rows of FILE on Spark: Parquet, CSV, or JSON by line (.ndjson, .jsonl).

    Its columns are those of a resource, of which only url is needed: id, url, headers, tags, checksum, mime; and
    job_type, tenant and job, by which rows that stand together are one job. The service has to run. Stopped or killed
    at any time, the same command goes on: what was submitted is not submitted again, and what is stored not downloaded.

    The exit code is 1 unless every row is stored.

    \b
    [bold]Examples[/]
      MESSAGE_BUS_DRIVER=nats slipstream jobs backfill resources.parquet --type photos
      MESSAGE_BUS_DRIVER=nats slipstream jobs backfill resources.parquet --type photos --master spark://10.0.0.9:7077
    """
    need_extras("downloads on Spark", "pipeline")
    hush_java()
    spark_given = taken_out(given)
    with (
        answering(False, _exit_code) as output,
        observed("downloads", given.pop("log_level"), given.pop("log_format")),
    ):
        settings = job_settings(given)
        check_bus("the service")
        source = _source(file, job_type, tenant, service, token)
        asyncio.run(_check_service(service, token))
        standing = _run(settings, source, spark_given, output)
    sys.exit(0 if standing.is_whole else 1)


def _exit_code(error: Exception) -> int | None:
    code = service_exit_code(error)
    return exit_code_on_spark(error) if code is None else code


def _source(file: Path, job_type: str, tenant: str, service: str, token: str) -> Source:
    from slipstream.jobs.errors import InvalidJobs  # noqa: PLC0415
    from slipstream.pipeline.downloads.backfill import Source  # noqa: PLC0415
    from slipstream.pipeline.downloads.rows import Rows  # noqa: PLC0415

    rows = Rows(file)
    if not job_type and "job_type" not in rows.columns:
        raise InvalidJobs(f"{file} has no column job_type: say with --type of which type the jobs are")
    return Source(rows, job_type, tenant, service, token)


async def _check_service(service: str, token: str) -> None:
    """Asked now: Spark takes a while to start."""
    from slipstream.jobs.client import JobsClient  # noqa: PLC0415

    async with JobsClient(service, token) as client:
        await client.health()


def _run(settings: JobSettings, source: Source, spark_given: dict[str, Any], output: Output) -> Standing:
    from slipstream.pipeline.downloads.on_spark import session_for_downloads  # noqa: PLC0415

    found = spark_settings(spark_given)
    output.note(f"[dim]starting Spark ({place(found)})[/]")
    with session_for_downloads(settings, found) as spark:
        return _on(spark, settings, source, output)


def _on(spark: SparkSession, settings: JobSettings, source: Source, output: Output) -> Standing:
    from slipstream.pipeline.downloads.on_spark import backfilling, slots_of  # noqa: PLC0415

    slots = slots_of(spark, settings)

    async def work() -> None:
        async with backfilling(settings, source, spark, slots) as found:
            output.note(
                f"[dim]{found.standing.rows:,} rows, {settings.concurrency} downloads at a time on {slots} slots of "
                f"Spark; {STOP}, and go on with the same command[/]"
            )
            with _Show(output) as show:
                is_whole = await found.run(show)
            _conclude(output, source, found.standing, is_stopped=not is_whole)
            standings.append(found.standing)

    standings: list[Standing] = []
    event_loop_run(work())
    return standings[0]


def _conclude(output: Output, source: Source, standing: Standing, *, is_stopped: bool) -> None:
    left = standing.rows - standing.ended
    output.table(
        ["ROWS", ">"],
        [
            ("stored", f"{standing.stored:,}"),
            ("failed", f"{standing.failed:,}"),
            ("refused", f"{standing.refused:,}"),
            ("left", f"{left:,}"),
            ("all", f"{standing.rows:,}"),
        ],
    )
    for refusal in standing.refusals:
        output.note(f"[yellow]row {refusal.row:,} is refused:[/] {escape(refusal.why)}")
    if standing.refused > len(standing.refusals):
        output.note(f"[dim]and {standing.refused - len(standing.refusals):,} more[/]")
    if standing.failed:
        of = "".join(
            f" --{name} {value}" for name, value in (("type", source.job_type), ("tenant", source.tenant)) if value
        )
        output.note(f"[dim]what failed, and why: slipstream jobs dlq list{escape(of)}[/]")
    if is_stopped:
        output.note("[yellow]stopped before its end:[/] the same command goes on with it")


class _Show:
    """A bar, or where nobody looks a line now and then."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._on_a_terminal = sys.stderr.isatty()
        columns = (TextColumn("[bold]{task.description}[/]"), Bar(), Counts(), Rate(), TimeRemainingColumn())
        self._progress = Progress(*columns, console=output.err, disable=not self._on_a_terminal)
        self._bar = self._progress.add_task("rows", total=None)
        self._said: tuple[float, int] = (0.0, -1)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def __call__(self, standing: Standing) -> None:
        failed = standing.failed + standing.refused
        state = f"stored, {standing.rows - standing.ended:,} left"
        self._progress.update(self._bar, total=standing.rows, completed=standing.ended, failed=failed, state=state)
        said_at, ended = self._said
        if not self._on_a_terminal and standing.ended != ended and time.monotonic() - said_at >= LINE_EVERY_S:
            self._said = (time.monotonic(), standing.ended)
            self._output.note(
                f"{standing.ended:,} of {standing.rows:,} rows: {standing.stored:,} stored, "
                f"{standing.failed:,} failed, {standing.refused:,} refused"
            )
