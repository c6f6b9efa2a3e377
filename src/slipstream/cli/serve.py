"""`slipstream serve`: run the broker."""

from __future__ import annotations

import logging
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import rich_click as click

from slipstream.settings import SettingError, Settings, describe_settings, load_settings

_HELP = """Run the broker.

Stores everything in a data directory and answers the DriftQ v1 API on one port, until it is stopped with Ctrl-C or
SIGTERM; then it answers what is under way and exits with 0.

[bold]Start[/]

    slipstream serve
    slipstream serve --port 9000 --data /var/lib/slipstream
    slipstream serve --config slipstream.toml
    SLIPSTREAM_DURABILITY=interval slipstream serve

Every option below is also an environment variable ([bold]--max-in-flight[/] is [bold]SLIPSTREAM_MAX_IN_FLIGHT[/]) and a
key of the TOML file ([bold]max_in_flight = 256[/]). The command line wins over the environment, the environment over
the file, the file over the profile. Sizes are bytes, times milliseconds.
"""


def _options(command: Callable[..., None]) -> Callable[..., None]:
    """One option per setting; unset ones stay out of the way of the other sources."""
    for info in reversed(list(describe_settings())):
        kind: Any = click.Choice(info.choices) if info.choices else info.kind
        name = f"{info.option}/--no-{info.option[2:]}" if info.kind is bool else info.option
        default = f"[dim](default {info.default})[/]" if info.default != "" else ""
        command = click.option(
            name, info.name, type=None if info.kind is bool else kind, default=None, help=f"{info.text} {default}"
        )(command)
    return command


def _grouped() -> list[Any]:
    sections: dict[str, list[str]] = {}
    for info in describe_settings():
        sections.setdefault(info.section, []).append(info.option)
    return [{"name": name, "options": options} for name, options in sections.items()]


click.rich_click.OPTION_GROUPS["slipstream serve"] = [*_grouped(), {"name": "Other", "options": ["--config", "--help"]}]


@click.command(help=_HELP)
@_options
@click.option("--config", type=click.Path(path_type=Path), envvar="SLIPSTREAM_CONFIG", help="TOML file with settings.")
# DriftQ's own flags, so that its scripts and compose files start this server unchanged.
@click.option("-addr", "addr", hidden=True)
@click.option("-wal", "wal", hidden=True)
@click.option("-reset-wal", "reset_wal", is_flag=True, hidden=True)
@click.option("-log-level", "driftq_log_level", hidden=True)
@click.option("-log-format", "driftq_log_format", hidden=True)
def serve(
    config: Path | None,
    addr: str | None,
    wal: str | None,
    reset_wal: bool,
    driftq_log_level: str | None,
    driftq_log_format: str | None,
    **given: Any,
) -> None:
    given = {name: value for name, value in given.items() if value is not None}
    if addr is not None:
        host, _, port = addr.rpartition(":")
        given |= {"host": host or "0.0.0.0", "port": port}
    for name, value in (("data", wal), ("log_level", driftq_log_level), ("log_format", driftq_log_format)):
        if value is not None:
            given[name] = {"warn": "warning"}.get(value, value)
    try:
        settings = load_settings(given, file=config)
    except SettingError as error:
        raise click.UsageError(str(error)) from error
    if reset_wal:
        _reset(Path(settings.data))
    _run(settings)


def _reset(data: Path) -> None:
    """Only ever removes what is plainly ours."""
    if data.is_dir() and any(data.iterdir()):
        if not (data / "LOCK").exists():
            raise click.UsageError(f"{data} does not look like a data directory; not removing it")
        shutil.rmtree(data)


def _run(settings: Settings) -> None:
    from slipstream.cli.logs import configure_logging  # noqa: PLC0415 - --help needs none of this
    from slipstream.server import Limits, ServerConfig  # noqa: PLC0415
    from slipstream.server import serve as run_server  # noqa: PLC0415
    from slipstream.store import Damaged, DirectoryInUse  # noqa: PLC0415

    configure_logging(settings.log_level, settings.log_format)
    log = logging.getLogger("slipstream")
    try:
        run_server(
            ServerConfig(
                host=settings.host,
                port=settings.port,
                data=Path(settings.data),
                broker=settings.broker_config(),
                store=settings.store_config(),
                engine=settings.engine_config(),
                limits=Limits(
                    body_bytes=settings.max_body_bytes,
                    line_bytes=settings.max_line_bytes,
                    header_bytes=settings.max_header_bytes,
                    headers=settings.max_headers,
                    receive_timeout_ms=settings.receive_timeout_ms,
                    idle_timeout_ms=settings.idle_timeout_ms,
                    stall_timeout_ms=settings.stall_timeout_ms,
                    connections=settings.max_connections,
                    pipelined=settings.max_pipelined,
                ),
                router=settings.router,
                router_timeout_ms=settings.router_timeout_ms,
                shutdown_timeout_ms=settings.shutdown_timeout_ms,
            )
        )
    except DirectoryInUse as error:
        log.error("%s", error)  # noqa: TRY400 - the message says it all
        sys.exit(3)
    except Damaged as error:
        log.error("%s", error)  # noqa: TRY400
        log.error("nothing was changed; see what a repair would do with: slipstream doctor %s", settings.data)  # noqa: TRY400
        sys.exit(4)
    except OSError as error:
        log.error("cannot serve on %s:%d with %s: %s", settings.host, settings.port, settings.data, error)  # noqa: TRY400
        sys.exit(5)
