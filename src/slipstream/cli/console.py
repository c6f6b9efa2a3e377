"""`slipstream console`: the page for people, with everything that it can be told about."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import rich_click as click

from slipstream.cli.observing import logging_options, observed
from slipstream.cli.output import EXIT_CODES, answering
from slipstream.extras import can_read_tables, is_installed

if TYPE_CHECKING:
    from slipstream.bus import BusSettings
    from slipstream.console import ConsoleSettings, Sources
    from slipstream.console.broker import BrokerStats
    from slipstream.console.bus_dead_letters import BusDeadLetters
    from slipstream.console.jobs import Jobs
    from slipstream.console.metrics import ConsoleMetrics
    from slipstream.console.nats import NatsTopics
    from slipstream.console.sources import Noun, Rest
    from slipstream.console.tables import Ends, TablesFolder


@click.command(epilog=EXIT_CODES)
@click.option("--host", help="Where it listens; also CONSOLE_HOST. Default 127.0.0.1.")
@click.option("--port", type=click.IntRange(0, 65535), help="Its port, 0 for any; also CONSOLE_PORT. Default 8070.")
@logging_options()
def console(host: str | None, port: int | None, log_level: str, log_format: str) -> None:
    """Serve the console: a page in the browser for whoever looks after all of it, until SIGTERM or Ctrl-C.

    The environment names what it shows, as for the other parts: the broker at SLIPSTREAM_URL, or NATS with
    MESSAGE_BUS_DRIVER=nats; slips at SLIP_STORE, jobs at JOBS_URL with JOBS_TOKEN, tables at PIPELINE_TABLES. Jobs and
    tables are left out if their extra, jobs or pipeline, is not installed. A broker started with --console-url shows
    the same page at its own address.

    \b
    [bold]Examples[/]
      slipstream console
      SLIPSTREAM_URL=http://10.0.0.1:8080 slipstream console --port 9000
    """
    from slipstream.console import load_settings  # noqa: PLC0415 - --help needs none of it

    with answering(False, _exit_code), observed("console", log_level, log_format):
        given = {"host": host, "port": port}
        settings = load_settings({name: value for name, value in given.items() if value is not None})
        asyncio.run(_run(settings))


def _exit_code(error: Exception) -> int | None:
    from slipstream import bus, slip  # noqa: PLC0415
    from slipstream.console import InvalidConsole  # noqa: PLC0415

    invalid: list[type[Exception]] = [InvalidConsole, bus.InvalidArgument, slip.InvalidSlip]
    if is_installed("jobs"):
        from slipstream.jobs.errors import InvalidJobs  # noqa: PLC0415

        invalid.append(InvalidJobs)
    if is_installed("pipeline"):
        from slipstream.pipeline.errors import InvalidPipeline  # noqa: PLC0415

        invalid.append(InvalidPipeline)
    if isinstance(error, tuple(invalid)):
        return 2
    return 1 if isinstance(error, OSError) else None


async def _run(settings: ConsoleSettings) -> None:
    from slipstream.console import create_console  # noqa: PLC0415
    from slipstream.console.server import listen, serve  # noqa: PLC0415

    made = create_console(sources_of(settings))
    await serve(made, listen(settings.host, settings.port, announce=not settings.parts))


def sources_of(settings: ConsoleSettings) -> Sources:
    """As the environment names them."""
    from slipstream import bus, slip  # noqa: PLC0415
    from slipstream.console import Sources  # noqa: PLC0415
    from slipstream.console.health import Probes  # noqa: PLC0415
    from slipstream.console.logs import PartLogs  # noqa: PLC0415
    from slipstream.console.metrics import metrics_in  # noqa: PLC0415
    from slipstream.console.parts import PartsFile  # noqa: PLC0415
    from slipstream.console.slips import Slips  # noqa: PLC0415
    from slipstream.up.board import is_current  # noqa: PLC0415

    on_bus = bus.load_settings({})
    metrics = metrics_in(None)
    stats, dead_letters, more, rest = _broker(settings, on_bus)
    return Sources(
        stats,
        slips=Slips(
            slip.load_settings({}),
            is_expected=_expected("SLIP_STORE", "slips", settings),
        ),
        jobs=_jobs(settings),
        tables=_tables(settings, stats.ends, metrics),
        bus_dead_letters=dead_letters,
        more=[*_decoder(on_bus), Probes(), *more],
        parts=PartsFile(settings.parts, is_current),
        logs=PartLogs(settings.parts),
        rest=rest,
        thresholds=settings,
        look_ms=settings.look_ms,
        state=settings.state,
        metrics=metrics,
    )


def _broker(
    settings: ConsoleSettings, on_bus: BusSettings
) -> tuple[BrokerStats | NatsTopics, BusDeadLetters, list[Noun], Rest]:
    """Return the source of the numbers, the dead letters of the bus, the calls that both need, and what answers all
    others."""
    from slipstream.console.bus_dead_letters import BusDeadLetters  # noqa: PLC0415

    if on_bus.driver == "nats":
        from slipstream.console.nats import NatsTopics, NotOnNats  # noqa: PLC0415

        topics = NatsTopics(on_bus)
        return topics, BusDeadLetters(topics.connected), [topics], NotOnNats()
    from slipstream.console import Forwarder  # noqa: PLC0415
    from slipstream.console.broker import BrokerStats  # noqa: PLC0415
    from slipstream.console.connected_bus import ConnectedBus  # noqa: PLC0415

    forwarder = Forwarder(
        settings.url, what="the broker", start="slipstream serve", timeout_ms=settings.answer_timeout_ms
    )
    connected = ConnectedBus(msgspec.structs.replace(on_bus, driver="http", url=settings.url))
    return BrokerStats(settings.url), BusDeadLetters(connected), [], forwarder


def _jobs(settings: ConsoleSettings) -> Jobs | None:
    """Return None if the client of the jobs service is not installed."""
    if not is_installed("jobs"):
        return None
    from slipstream.console.jobs import Jobs  # noqa: PLC0415

    return Jobs(
        settings.jobs_url,
        settings.jobs_token,
        is_expected=_expected("JOBS_URL", "jobs", settings),
        timeout_ms=settings.answer_timeout_ms,
    )


def _decoder(on_bus: BusSettings) -> list[Noun]:
    """Return an empty list if the message types of jobs are not installed."""
    if not is_installed("jobs"):
        return []
    from slipstream import jobs  # noqa: PLC0415
    from slipstream.console.decoded import Decoder  # noqa: PLC0415

    return [Decoder(jobs.load_settings({}).namespace, on_bus.prefix)]


def _tables(settings: ConsoleSettings, ends: Ends, metrics: ConsoleMetrics) -> TablesFolder | None:
    """Return None if the libraries that read tables are not installed."""
    if not can_read_tables():
        return None
    from slipstream.console.tables import TablesFolder  # noqa: PLC0415
    from slipstream.pipeline.settings import load_settings  # noqa: PLC0415

    return TablesFolder(Path(load_settings({}).tables), settings, ends, metrics)


def _expected(variable: str, part: str, settings: ConsoleSettings) -> Callable[[], bool]:
    """Return a function that says whether it is a problem if the source that the variable names is missing.

    Beside `slipstream up` it is one only while the part runs: it may be left out, or still be starting, and a part that
    has crashed is a problem of its own."""
    from slipstream.up import board  # noqa: PLC0415

    def is_expected() -> bool:
        started = board.read(Path(settings.parts)) if settings.parts else None
        if started is None:
            return is_named
        return any(each.name == part and each.state == "running" for each in started.parts)

    is_named = bool(os.environ.get(variable, "").strip())
    return is_expected
