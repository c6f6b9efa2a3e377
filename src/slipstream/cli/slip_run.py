"""`slipstream slip run`, `router` and `worker`: routers and workers as programs, until SIGTERM or Ctrl-C."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import rich_click as click
from rich.markup import escape

from slipstream import references
from slipstream.cli.bus import INSIDE
from slipstream.cli.health import health_options, opened_health
from slipstream.cli.observing import logging_options, observed
from slipstream.cli.output import EXIT_CODES, Output, answering
from slipstream.cli.slip_store import exit_code, slip_settings
from slipstream.cli.spark_options import spark_options

if TYPE_CHECKING:
    from slipstream.health import Health
    from slipstream.slip import Router, SlipSettings, Worker


CommandT = TypeVar("CommandT", bound=Callable[..., Any])

ROUTES = click.option("--routes", help="The route table, which is watched for changes; also SLIP_ROUTES.")


def _service_options(command: CommandT) -> CommandT:
    for option in reversed(
        [
            click.option("--store", help="What router and workers share: a file, or redis://…; also SLIP_STORE."),
            logging_options(),
            health_options,
        ]
    ):
        command = option(command)
    return command


@click.command(epilog=EXIT_CODES)
@click.argument("references", nargs=-1, required=True, metavar="MODULE:NAME...")
@ROUTES
@_service_options
def run(references: tuple[str, ...], routes: str | None, **given: Any) -> None:
    """Run a router and workers in one process, until SIGTERM or Ctrl-C; then what is under way may finish.

    Each MODULE:NAME is a Worker, or the Router if there are no --routes; modules are looked for here first. The bus is
    that of the environment (MESSAGE_BUS_DRIVER; else the server that runs here). With the embedded broker, one process
    for all is the only way.

    \b
    [bold]Examples[/]
      slipstream slip run --routes routes.yaml shop:worker
      slipstream slip run shop:router shop:worker billing:worker
    """
    _serve(references, routes, ("Router", "Worker"), **given)


@click.command(epilog=EXIT_CODES)
@click.argument("reference", required=False, metavar="[MODULE:NAME]")
@ROUTES
@_service_options
def router(reference: str | None, routes: str | None, **given: Any) -> None:
    """Run a router: of a route table, or a Router object that has planners as well.

    \b
    [bold]Examples[/]
      slipstream slip router --routes routes.yaml
      slipstream slip router shop:router
    """
    _serve(() if reference is None else (reference,), routes, ("Router",), **given)


@click.command(epilog=EXIT_CODES)
@click.argument("references", nargs=-1, required=True, metavar="MODULE:NAME...")
@click.option(
    "--engine",
    type=click.Choice(["asyncio", "spark"]),
    default="asyncio",
    show_default=True,
    help="What does the work: this process, message by message; or Spark, many at a time.",
)
@click.option("--once", is_flag=True, help="With --engine spark: do what is there, and end.")
@spark_options
@_service_options
def worker(
    references: tuple[str, ...],
    engine: str,
    once: bool,
    master: str | None,
    remote: str | None,
    spark_conf: str | None,
    **given: Any,
) -> None:
    """Run workers, on a bus that they share with a router elsewhere.

    With --engine spark each MODULE:NAME is a function that was declared with @spark_step: it is called on Spark, for
    many messages at a time.

    \b
    [bold]Examples[/]
      slipstream slip worker shop:worker
      slipstream slip worker --engine spark shop:embed
      slipstream slip worker --engine spark --master spark://10.0.0.1:7077 shop:embed shop:rank
    """
    of_spark = {"master": master, "remote": remote, "spark_conf": spark_conf}
    if engine == "spark":
        _serve_on_spark(references, once=once, of_spark=of_spark, **given)
        return
    if once or any(value is not None for value in of_spark.values()):
        raise click.UsageError("--once, --master, --remote and --conf are for --engine spark")
    _serve(references, None, ("Worker",), **given)


def _serve_on_spark(
    references: Sequence[str],
    *,
    once: bool,
    of_spark: dict[str, str | None],
    store: str | None,
    log_level: str,
    log_format: str,
    health_port: int | None,
    health_host: str | None,
) -> None:
    from slipstream.cli.slip_spark import run_on_spark  # noqa: PLC0415 - --help needs none of this

    with observed("slips", log_level, log_format), opened_health(health_port, health_host) as health:
        run_on_spark(references, once=once, store=store, given=of_spark, health=health)


def _serve(
    references: Sequence[str],
    routes: str | None,
    wanted: tuple[str, ...],
    *,
    store: str | None,
    log_level: str,
    log_format: str,
    health_port: int | None,
    health_host: str | None,
) -> None:
    with (
        answering(False, exit_code) as output,
        observed("slips", log_level, log_format),
        opened_health(health_port, health_host) as health,
    ):
        settings = slip_settings(store)
        if len(wanted) == 1:
            _check_bus(wanted[0])
        services = [load_service(reference, wanted) for reference in references]
        if "Router" in wanted:
            services = _with_router(services, routes or settings.routes, given=routes is not None)
        asyncio.run(_run(services, settings, output, references, health))


def _check_bus(alone: str) -> None:
    from slipstream.bus import InvalidArgument, load_settings  # noqa: PLC0415

    driver = load_settings({}).driver
    if driver in INSIDE:
        others = "workers" if alone == "Router" else "a router"
        raise InvalidArgument(
            f"the bus is {driver}, whose broker is inside one process, and out of reach of {others} elsewhere: start a "
            "server with `slipstream serve`, name another bus with MESSAGE_BUS_DRIVER, or run all of it in one process "
            "with `slipstream slip run`"
        )


def _with_router(services: list[Router | Worker], routes: str, *, given: bool) -> list[Router | Worker]:
    from slipstream.slip import InvalidSlip, Router  # noqa: PLC0415

    routers = [service for service in services if isinstance(service, Router)]
    if routers and given:
        raise InvalidSlip("there is a Router, which has routes of its own, and --routes: one of them")
    if len(routers) > 1:
        raise InvalidSlip("there are two Routers: a process needs one")
    if routers:
        return services
    if not routes:
        raise InvalidSlip("there are no routes: name a table with --routes or SLIP_ROUTES, or a Router as MODULE:NAME")
    return [Router(routes), *services]


def load_service(reference: str, wanted: tuple[str, ...]) -> Router | Worker:
    """Raises InvalidSlip if it cannot be imported, or is something else."""
    from slipstream.slip import InvalidSlip, Router, Worker  # noqa: PLC0415

    try:
        found = references.find(reference)
    except references.NotFound as error:
        raise InvalidSlip(str(error)) from error
    for name, kind in (("Router", Router), ("Worker", Worker)):
        if name in wanted and isinstance(found, kind):
            return found
    raise InvalidSlip(f"{reference} is no {' or '.join(wanted)}, but of type {type(found).__name__}")


async def _run(
    services: list[Router | Worker],
    settings: SlipSettings,
    output: Output,
    references: Sequence[str],
    health: Health,
) -> None:
    from slipstream.health import beating  # noqa: PLC0415
    from slipstream.slip import serving  # noqa: PLC0415

    health.starting("the bus is being opened, and its topics subscribed to")
    async with beating(health), serving(*services, settings=settings) as bus:
        what = ", ".join(references) or "the router"
        output.note(f"[dim]{escape(what)} at work on the {bus.settings.driver} bus; stop with SIGTERM or Ctrl-C[/]")
        health.ready(lambda: bus.trouble)
        await bus.until_stopped()
        health.stopping()
