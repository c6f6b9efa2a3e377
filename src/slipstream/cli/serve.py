"""`slipstream serve`: run the broker."""

from __future__ import annotations

import errno
import logging
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rich_click as click

from slipstream.cli.observing import observed
from slipstream.settings import SettingError, SettingInfo, Settings, describe_settings, load_settings, unknown_variables

if TYPE_CHECKING:
    from slipstream.engine import Engine
    from slipstream.server.app import Console

_HELP = """Run the broker.

Stores everything in a data directory and answers the DriftQ v1 API and /v2 on one port, until it is stopped with Ctrl-C
or SIGTERM; then it answers what is under way and exits with 0.

Every setting has one name in three places: [bold]--max-in-flight[/] here, [bold]SLIPSTREAM_MAX_IN_FLIGHT[/] in the
environment, [bold]max_in_flight = 256[/] in the TOML file. The command line wins over the environment, the environment
over the file, the file over the profile.

\b
[bold]Examples[/]
  slipstream serve
  slipstream serve --port 9000 --data /srv/slipstream
  slipstream serve --config slipstream.toml
  SLIPSTREAM_DURABILITY=interval slipstream serve
"""

_EXIT_CODES = """[bold]Exit codes:[/] 0 stopped as asked, 2 a setting or the router makes no sense, 3 another process
uses the data directory, 4 the data directory is damaged, 5 the port or the directory cannot be used,
6 stopped as asked, but it had been refusing messages after a disk error.
"""


def _options(command: Callable[..., None]) -> Callable[..., None]:
    """One option per setting; unset ones stay out of the way of the other sources."""
    for info in reversed(list(describe_settings())):
        kind: Any = click.Choice(info.choices) if info.choices else info.kind
        name = f"{info.option}/--no-{info.option[2:]}" if info.kind is bool else info.option
        command = click.option(
            name, info.name, type=None if info.kind is bool else kind, default=None, help=f"{info.text} {_facts(info)}"
        )(command)
    return command


def _facts(info: SettingInfo) -> str:
    """What may be given and what is used without it, as a person would say it."""
    if info.kind is bool:
        return f"[dim](--no-{info.option[2:]} turns it off; default {'on' if info.default else 'off'})[/]"
    facts = ["one of " + ", ".join(info.choices)] if info.choices else []
    if info.default != "":
        facts.append(f"default {show_value(info.name, info.default)}")
    return f"[dim]({'; '.join(facts)})[/]" if facts else ""


def show_value(name: str, value: Any) -> str:
    """`3600000 (1 h)`: the number to type, and what it is."""
    units: list[tuple[int, str]] = []
    if name.endswith("_ms") or "_ms_" in name:
        units = [(24 * 3600 * 1000, "days"), (3600 * 1000, "h"), (60 * 1000, "min"), (1000, "s"), (1, "ms")]
    elif name.endswith("_bytes"):
        units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "bytes")]
    for size, unit in units:
        if value and value % size == 0:
            return f"{value} ms" if unit == "ms" else f"{value} = {value // size} {unit}"
    return str(value)


def _grouped() -> list[Any]:
    sections: dict[str, list[str]] = {}
    for info in describe_settings():
        sections.setdefault(info.section, []).append(info.option)
    sections["Flags of DriftQ"] = DRIFTQ_FLAGS
    sections["Other"] = ["--config", "--help"]
    return [{"name": name, "options": options} for name, options in sections.items()]


DRIFTQ_FLAGS = ["-addr", "-wal", "-reset-wal", "-log-level", "-log-format"]

click.rich_click.OPTION_GROUPS["slipstream serve"] = _grouped()
# Names first and whole, however narrow the terminal: what may be given stands in the text.
click.rich_click.OPTIONS_TABLE_COLUMN_TYPES = ["opt_primary", "help"]


@click.command(help=_HELP, epilog=_EXIT_CODES)
@_options
@click.option("--config", type=click.Path(path_type=Path), envvar="SLIPSTREAM_CONFIG", help="TOML file with settings.")
# So that DriftQ's scripts start this server unchanged. Go takes one dash or two for the same flag; where both of us
# have one, ours with two dashes exists already.
@click.option("-addr", "--addr", "addr", help="HOST:PORT, or :PORT for every address.")
@click.option("-wal", "--wal", "wal", help="The same as --data: a directory here, a file there.")
@click.option("-reset-wal", "--reset-wal", "reset_wal", is_flag=True, help="Forget everything stored, then start.")
@click.option("-log-level", "driftq_log_level", help="The same as --log-level.")
@click.option("-log-format", "driftq_log_format", help="The same as --log-format.")
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
        given |= {"host": host.strip("[]") or "0.0.0.0", "port": port}
    for name, value in (("data", wal), ("log_level", driftq_log_level), ("log_format", driftq_log_format)):
        if value is not None:
            given[name] = {"warn": "warning"}.get(value, value)
    try:
        settings = load_settings(given, file=config)
    except SettingError as error:
        raise click.UsageError(str(error)) from error
    with observed("broker", settings.log_level, settings.log_format):
        _run(settings, reset=reset_wal)


def _reset(data: Path) -> None:
    """Removes what the store wrote and nothing else, and only while nobody runs on it."""
    from slipstream.store.lock import DirectoryLock  # noqa: PLC0415

    if not data.is_dir():
        return
    if not (data / "LOCK").exists():
        if any(data.iterdir()):
            raise click.UsageError(f"{data} does not look like a data directory; not removing anything")
        return
    lock = DirectoryLock(data)
    try:
        shutil.rmtree(data / "segments", ignore_errors=True)
        # The oldest checkpoint last: a start in between must not find later files without what they build on.
        for path in [*data.glob("journal-*"), *data.glob("checkpoint-*")]:
            path.unlink()
    finally:
        lock.release()


def _run(settings: Settings, *, reset: bool) -> None:
    from slipstream.broker import Unavailable  # noqa: PLC0415 - --help needs none of this
    from slipstream.router import RouterRefused  # noqa: PLC0415
    from slipstream.server import ServerConfig  # noqa: PLC0415
    from slipstream.server import serve as run_server  # noqa: PLC0415
    from slipstream.store import Damaged, DirectoryInUse, ForeignDirectory, do_without_numpy  # noqa: PLC0415

    log = logging.getLogger("slipstream")
    for warning in unknown_variables():
        log.warning("%s", warning)
    if not settings.router:
        do_without_numpy()  # a router of somebody else's may want it
    try:
        if reset:
            _reset(Path(settings.data))
        run_server(
            ServerConfig(
                host=settings.host,
                port=settings.port,
                data=Path(settings.data),
                broker=settings.broker_config(),
                store=settings.store_config(),
                engine=settings.engine_config(),
                limits=settings.limits(),
                router=settings.router,
                router_timeout_ms=settings.router_timeout_ms,
                shutdown_timeout_ms=settings.shutdown_timeout_ms,
                console=_console(settings),
            )
        )
    except RouterRefused as error:
        log.error("%s", error)  # noqa: TRY400 - the message says it all
        sys.exit(2)
    except DirectoryInUse as error:
        log.error("%s", error)  # noqa: TRY400
        sys.exit(3)
    except Damaged as error:
        log.error("%s", error)  # noqa: TRY400
        log.error("nothing was changed; see what a repair would do with: slipstream doctor %s", settings.data)  # noqa: TRY400
        sys.exit(4)
    except Unavailable as error:
        log.error("stopped, and had refused messages before: %s", error)  # noqa: TRY400
        sys.exit(6)
    except ForeignDirectory as error:
        log.error("%s", error)  # noqa: TRY400
        sys.exit(5)
    except OSError as error:
        where = f"{settings.host}:{settings.port} with {settings.data}"
        log.error("cannot serve on %s: %s%s", where, error, _hint(error))  # noqa: TRY400
        sys.exit(5)


def _console(settings: Settings) -> Callable[[Engine], Console] | None:
    if not settings.console:
        return None
    from slipstream.cli.console_in_broker import console_of  # noqa: PLC0415

    return console_of(settings)


def _hint(error: OSError) -> str:
    """What to do about it."""
    return {
        errno.EADDRINUSE: "; another program has the port: stop it, or choose another with --port",
        errno.EADDRNOTAVAIL: "; this machine has no such address: choose another with --host",
        errno.EACCES: "; this user may not: choose another directory with --data, or a port above 1023",
        errno.EEXIST: "; that is a file: choose a directory with --data",
        errno.ENOTDIR: "; that is a file: choose a directory with --data",
        errno.ENOSPC: "; make room on the disk and start again, nothing is lost",
    }.get(error.errno or 0, "")
