"""`slipstream jobs run`, `serve`, `worker` and `provision`: what does the work, until SIGTERM or Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import rich_click as click
from rich.markup import escape

from slipstream.cli.extras import need_extras
from slipstream.cli.health import health_options, opened_health
from slipstream.cli.jobs_process import check_bus, event_loop_run
from slipstream.cli.jobs_spark import hush_java, spark_exit_code, taken_out, work_on_spark
from slipstream.cli.observing import logging_options, observed
from slipstream.cli.output import EXIT_CODES, NOT_FOUND, UNREACHABLE, Output, answering
from slipstream.cli.spark_options import spark_options

if TYPE_CHECKING:
    from slipstream.health import Health
    from slipstream.jobs.provision import Provisioned
    from slipstream.jobs.settings import JobSettings

STOP = "stop with SIGTERM or Ctrl-C"

Decorator: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]


def _options(*options: Decorator) -> Decorator:
    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return add


config_options = _options(
    click.option("--config", help="The TOML file of job types, storages and proxies; also JOBS_CONFIG."),
    click.option("--storage", help="A folder, or the URL of a bucket; also JOBS_STORAGE."),
)
_SERVICE = _options(
    click.option("--host", help="Where the service listens; also JOBS_HOST."),
    click.option("--port", type=click.IntRange(0, 65535), help="Its port, 0 for any that is free; also JOBS_PORT."),
    click.option("--ledger", help="The file of the ledger; also JOBS_LEDGER."),
)
concurrency_option = _options(
    click.option("--concurrency", type=click.IntRange(1), help="Downloads at a time; also JOBS_CONCURRENCY.")
)


@click.command(epilog=EXIT_CODES)
@config_options
@_SERVICE
@concurrency_option
@logging_options()
def run(**given: Any) -> None:
    """Run the service and a worker in one process, until SIGTERM or Ctrl-C; then what is under way may finish.

    With the embedded broker that is the only way; on a bus for several processes, more workers may join.

    \b
    [bold]Examples[/]
      slipstream jobs run
      slipstream jobs run --storage s3://photos --concurrency 64
    """
    _start_service(given, work=True)


@click.command(epilog=EXIT_CODES)
@config_options
@_SERVICE
@logging_options()
def serve(**given: Any) -> None:
    """Run the service: POST /jobs, /operators and the ledger. There is one.

    \b
    [bold]Examples[/]
      MESSAGE_BUS_DRIVER=nats slipstream jobs serve --port 8090
    """
    _start_service(given, work=False)


@click.command(epilog=EXIT_CODES)
@config_options
@concurrency_option
@click.option(
    "--engine",
    type=click.Choice(["asyncio", "spark"]),
    default="asyncio",
    show_default=True,
    help="What downloads: this process, or the executors of Spark.",
)
@spark_options
@logging_options()
@health_options
def worker(engine: str, health_port: int | None, health_host: str | None, **given: Any) -> None:
    """Run a worker, of any number, on a bus that it shares with the service.

    With --engine spark the executors of a cluster are together what one worker is: its downloads at a time and its
    limits for each host are those of all of them.

    \b
    [bold]Examples[/]
      MESSAGE_BUS_DRIVER=nats slipstream jobs worker --storage s3://photos
      MESSAGE_BUS_DRIVER=nats slipstream jobs worker --engine spark --master spark://10.0.0.9:7077 --concurrency 256
    """
    spark_given = taken_out(given)
    if engine == "asyncio" and spark_given:
        raise click.UsageError("--master, --remote and --conf are for --engine spark: say that, or leave them out")
    with opened_health(health_port, health_host) as health:
        if engine == "spark":
            _start_on_spark(given, spark_given, health)
        else:
            _start_worker(given, health)


@click.command(epilog=EXIT_CODES)
@click.option("--json", "as_json", is_flag=True, help="Answer with JSON, for machines.")
def provision(as_json: bool) -> None:
    """Make the streams as they should be, on the bus of the environment, and print what that changed.

    May be run any number of times. What the engine cannot do is said, and is no error.

    \b
    [bold]Examples[/]
      MESSAGE_BUS_DRIVER=nats slipstream jobs provision
    """
    with answering(as_json, exit_code) as output:
        settings = job_settings({})
        done = asyncio.run(_provision(settings))
        if as_json:
            output.json({"streams": done})
            return
        for each in done:
            _show(output, each)


async def _provision(settings: JobSettings) -> list[Provisioned]:
    from slipstream.bus import open_bus  # noqa: PLC0415 - --help needs none of it
    from slipstream.jobs.provision import provision as provision_streams  # noqa: PLC0415

    async with open_bus() as bus:
        return await provision_streams(bus, settings)


def _show(output: Output, done: Provisioned) -> None:
    name = f"[bold]{escape(done.topic)}[/]"
    has = f"partitions {done.partitions}, time {done.time}, size {done.size}"
    if done.created:
        output.say(f"[green]+[/] {name}: created: {has}")
    elif done.is_changed:
        output.say(f"[yellow]~[/] {name}: changed: {has}")
    else:
        output.say(f"  {name}: nothing to change: {has}")
    for each in done.differences:
        if not each.is_settled:
            output.say(f"    {each.what}: {each.now}, though {each.wanted} is wanted: [yellow]not to be had here[/]")
        elif each.was != each.now:
            output.say(f"    {each.what}: {each.was} → [green]{each.now}[/]")


def job_settings(given: dict[str, Any]) -> JobSettings:
    from slipstream.jobs.settings import load_settings  # noqa: PLC0415

    return load_settings({name: value for name, value in given.items() if value is not None})


def exit_code(error: Exception) -> int | None:
    from slipstream import bus  # noqa: PLC0415
    from slipstream.jobs import errors  # noqa: PLC0415

    codes: list[tuple[type[Exception], int]] = [
        (bus.InvalidArgument, 2),
        (errors.InvalidJobs, 2),
        (bus.TopicMissing, NOT_FOUND),
        (bus.BusUnavailable, UNREACHABLE),
        (bus.BusError, 1),
        (errors.JobsError, 1),
        (OSError, 1),
    ]
    return next((code for kind, code in codes if isinstance(error, kind)), None)


def _observed(part: str, given: dict[str, Any]) -> contextlib.AbstractContextManager[None]:
    return observed(part, given.pop("log_level"), given.pop("log_format"))


def _start_service(given: dict[str, Any], *, work: bool) -> None:
    with answering(False, exit_code) as output, _observed("jobs", given):
        settings = job_settings(given)
        if not work:
            check_bus("a worker")
        event_loop_run(_serve(settings, output, work=work))


def _start_worker(given: dict[str, Any], health: Health) -> None:
    with answering(False, exit_code) as output, _observed("downloads", given):
        settings = job_settings(given)
        check_bus("the service")
        event_loop_run(_work(settings, output, health))


def _start_on_spark(given: dict[str, Any], spark_given: dict[str, Any], health: Health) -> None:
    need_extras("downloads on Spark", "pipeline")
    hush_java()
    with answering(False, exit_code_on_spark) as output, _observed("downloads", given):
        settings = job_settings(given)
        check_bus("the service")
        work_on_spark(settings, spark_given, output, STOP, health)


def exit_code_on_spark(error: Exception) -> int | None:
    code = exit_code(error)
    return spark_exit_code(error) if code is None else code


async def _serve(settings: JobSettings, output: Output, *, work: bool) -> None:
    from slipstream.jobs.server import listening  # noqa: PLC0415
    from slipstream.jobs.service import serving  # noqa: PLC0415

    _check_port(settings)

    async with serving(settings, worker=work) as service, listening(service) as url:
        what = f", with a worker of {settings.concurrency} downloads at a time" if work else ""
        output.note(f"[dim]taking jobs at {escape(url)}/jobs on the {service.bus.driver} bus{what}; {STOP}[/]")
        await service.bus.until_stopped()


def _check_port(settings: JobSettings) -> None:
    """Raise InvalidJobs if the port is taken, before a second service takes messages of the first."""
    from slipstream import listening  # noqa: PLC0415
    from slipstream.jobs.errors import InvalidJobs  # noqa: PLC0415

    try:
        listening.listen(settings.host, settings.port).close()
    except OSError as error:
        raise InvalidJobs(
            f"{settings.host}:{settings.port} cannot be listened at: {error.strerror}; if it is a jobs service, as "
            "beside `slipstream up`, use it with `slipstream jobs submit`, else choose another port with JOBS_PORT"
        ) from error


async def _work(settings: JobSettings, output: Output, health: Health) -> None:
    from slipstream.health import beating  # noqa: PLC0415
    from slipstream.jobs.service import working  # noqa: PLC0415

    health.starting("the bus is being opened, and its topics subscribed to")
    async with beating(health), working(settings) as bus:
        what = f"a worker of {settings.concurrency} downloads at a time"
        output.note(f"[dim]{what} on the {bus.driver} bus; {STOP}[/]")
        health.ready(lambda: bus.trouble)
        await bus.until_stopped()
        health.stopping()
