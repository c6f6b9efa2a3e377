"""Which parts there are, and what each is started with: the platform on one machine, as data."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from slipstream.up.part import Part

BusName = Literal["slipstream", "nats"]

HOST = "127.0.0.1"
HOSTS = {"broker": "SLIPSTREAM_HOST", "jobs": "JOBS_HOST", "console": "CONSOLE_HOST"}
"""Variables by which parts may be told to listen elsewhere."""
EVERYWHERE = {"", "0.0.0.0", "::"}
READY, ALIVE = "/health/ready", "/health/live"

DEMO_NETWORK = "127.83.0.1/32"
"""Where the web server of `slipstream demo` listens. Downloads from this machine are refused otherwise, and this one
address is nobody else's."""

OPTIONAL = ("slips", "jobs", "downloads", "pipeline", "console")
"""What can be left out."""

PORTS = {"broker": 8080, "console": 8070, "slips": 8071, "pipeline": 8072, "jobs": 8090, "downloads": 8091}
"""The usual ones; nats is where its clients look for it."""

EXTRA_OF = {"slips": "slip", "jobs": "jobs", "downloads": "jobs", "pipeline": "pipeline"}
"""Part → the extra that it needs."""

_ASK = "mend it, and start again"

HOPELESS = {2: f"a setting makes no sense: {_ASK}"}
BROKER_HOPELESS = {
    **HOPELESS,
    3: "another process uses the data directory: stop it, or choose another with --data",
    4: "the data directory is damaged: see what a repair would do with slipstream doctor",
    5: "the port or the directory cannot be used: choose others with --port and --data",
}


class Choices(msgspec.Struct, frozen=True, kw_only=True):
    """What is to run, and where."""

    data: Path
    ports: Mapping[str, int]
    """By part: numbers, not 0. Also `nats` and `nats-health`, where it is started here."""
    bus: BusName = "slipstream"
    without: frozenset[str] = frozenset()
    nats_url: str = ""
    nats_server: str = ""
    """The program, where it is started here; else `nats_url` answers already."""
    log_format: str = "text"
    hosts: Mapping[str, str] = msgspec.field(default_factory=dict)
    """By part, where it is not this machine alone."""


def hosts_of(environment: Mapping[str, str]) -> dict[str, str]:
    """Where parts are found that were told to listen elsewhere; who listens everywhere is found here."""
    named = {name: environment.get(variable, "").strip() for name, variable in HOSTS.items()}
    return {name: host for name, host in named.items() if host not in EVERYWHERE}


def plan(choices: Choices, environment: Mapping[str, str]) -> list[Part]:
    """In the order of their start. What the environment says about a part wins, but for where the parts find each
    other."""
    makers = {
        "broker": _broker,
        "nats": _nats,
        "jobs": _jobs,
        "downloads": _downloads,
        "slips": _slips,
        "console": _console,
        "pipeline": _pipeline,
    }
    left_out = set(choices.without) | {"nats" if choices.bus == "slipstream" else "broker"}
    if not choices.nats_server:
        left_out.add("nats")
    return [make(choices, environment) for name, make in makers.items() if name not in left_out]


def console_url(choices: Choices) -> str:
    """Where a person looks; empty where there is no page. The broker's page has less on it without a console beside."""
    if choices.bus == "slipstream":
        return f"{_url(choices, 'broker')}/"
    return "" if "console" in choices.without else f"{_url(choices, 'console')}/"


def exports(choices: Choices) -> dict[str, str]:
    """Return the variables that commands in another directory need to find what runs."""
    found = {"SLIPSTREAM_DATA": str(choices.data.absolute())}
    if choices.bus == "nats":
        found["MESSAGE_BUS_DRIVER"] = "nats"
    if choices.nats_server:
        found["NATS_URL"] = choices.nats_url
    for variable, name in {"SLIPSTREAM_URL": "broker", "JOBS_URL": "jobs"}.items():
        runs = name not in choices.without and not (name == "broker" and choices.bus == "nats")
        if runs and (url := _url(choices, name)) != f"http://{HOST}:{PORTS[name]}":
            found[variable] = url
    return found


def _url(choices: Choices, name: str) -> str:
    host = choices.hosts.get(name, HOST)
    return f"http://{f'[{host}]' if ':' in host else host}:{choices.ports[name]}"


def _slipstream(*arguments: str) -> tuple[str, ...]:
    # -P: a file beside whoever starts us, called nats.py say, would be imported in place of the library.
    return (sys.executable, "-P", "-m", "slipstream", *arguments)


def _shared(choices: Choices, environment: Mapping[str, str]) -> dict[str, str]:
    """What all parts get but the broker: where the others are, and where each keeps what it has."""
    data = choices.data
    kept = {
        "SLIP_STORE": data / "slips.db",
        "JOBS_STORAGE": data / "objects",
        "JOBS_LEDGER": data / "jobs.db",
        "PIPELINE_TABLES": data / "tables",
    }
    found = {name: str(path) for name, path in kept.items() if not environment.get(name, "").strip()}
    found |= {"JOBS_URL": _url(choices, "jobs"), "PYTHONUNBUFFERED": "1"}
    if choices.bus == "nats":
        return found | {"MESSAGE_BUS_DRIVER": "nats", "PIPELINE_BUS": "nats", "NATS_URL": choices.nats_url}
    return found | {
        "MESSAGE_BUS_DRIVER": "http",
        "PIPELINE_BUS": "slipstream",
        "SLIPSTREAM_URL": _url(choices, "broker"),
    }


def _health_port(choices: Choices, name: str) -> dict[str, str]:
    """For parts that have no other port."""
    return {"HEALTH_PORT": str(choices.ports[name]), "HEALTH_HOST": HOST}


def _bus_part(choices: Choices) -> tuple[str, ...]:
    """What the others wait for."""
    if choices.bus == "slipstream":
        return ("broker",)
    return ("nats",) if choices.nats_server else ()


def _broker(choices: Choices, environment: Mapping[str, str]) -> Part:
    more = {} if "console" in choices.without else {"SLIPSTREAM_CONSOLE_URL": _url(choices, "console")}
    return Part(
        name="broker",
        command=_slipstream(
            *("serve", "--port", str(choices.ports["broker"]), "--data", str(choices.data)),
            *("--log-format", choices.log_format),
        ),
        environment={"PYTHONUNBUFFERED": "1", **more},
        url=_url(choices, "broker"),
        health=_url(choices, "broker") + READY,
        alive=_url(choices, "broker") + ALIVE,
        hopeless=BROKER_HOPELESS,
        is_vital=True,
    )


def _nats(choices: Choices, environment: Mapping[str, str]) -> Part:
    ports = choices.ports
    return Part(
        name="nats",
        command=(
            choices.nats_server,
            *("-a", HOST, "-p", str(ports["nats"]), "-m", str(ports["nats-health"])),
            *("-js", "-sd", str(choices.data / "nats")),
        ),
        url=choices.nats_url,
        health=f"http://{HOST}:{ports['nats-health']}/healthz",
        is_vital=True,
    )


def _slips(choices: Choices, environment: Mapping[str, str]) -> Part:
    routes = Path(__file__).parent.parent / "demo" / "routes.yaml"
    return Part(
        name="slips",
        command=_slipstream(
            *("slip", "run", "--routes", str(routes)),
            *("--log-format", choices.log_format, "slipstream.demo.workers:worker"),
        ),
        environment=_shared(choices, environment) | _health_port(choices, "slips"),
        url=_url(choices, "slips"),
        health=_url(choices, "slips") + READY,
        alive=_url(choices, "slips") + ALIVE,
        needs=_bus_part(choices),
        hopeless=HOPELESS,
    )


def _jobs(choices: Choices, environment: Mapping[str, str]) -> Part:
    return Part(
        name="jobs",
        command=_slipstream("jobs", "serve", "--port", str(choices.ports["jobs"]), "--log-format", choices.log_format),
        environment=_shared(choices, environment),
        url=_url(choices, "jobs"),
        health=_url(choices, "jobs") + READY,
        alive=_url(choices, "jobs") + ALIVE,
        needs=_bus_part(choices),
        hopeless=HOPELESS,
    )


def _downloads(choices: Choices, environment: Mapping[str, str]) -> Part:
    allowed = {} if "JOBS_ALLOW_NETWORKS" in environment else {"JOBS_ALLOW_NETWORKS": DEMO_NETWORK}
    return Part(
        name="downloads",
        command=_slipstream("jobs", "worker", "--log-format", choices.log_format),
        environment=_shared(choices, environment) | _health_port(choices, "downloads") | allowed,
        url=_url(choices, "downloads"),
        health=_url(choices, "downloads") + READY,
        alive=_url(choices, "downloads") + ALIVE,
        needs=_bus_part(choices),
        hopeless=HOPELESS,
    )


def _pipeline(choices: Choices, environment: Mapping[str, str]) -> Part:
    return Part(
        name="pipeline",
        command=_slipstream("pipeline", "run", "--log-format", choices.log_format),
        environment=_shared(choices, environment) | _health_port(choices, "pipeline"),
        url=_url(choices, "pipeline"),
        health=_url(choices, "pipeline") + READY,
        alive=_url(choices, "pipeline") + ALIVE,
        needs=_bus_part(choices),
        patience="it takes 15 to 30 s",
        hopeless=HOPELESS,
    )


def _console(choices: Choices, environment: Mapping[str, str]) -> Part:
    url = _url(choices, "console")
    more = {"SLIPSTREAM_PARTS": str(choices.data / "up" / "parts.json")}
    if not environment.get("CONSOLE_STATE", "").strip():
        more["CONSOLE_STATE"] = str(choices.data / "console.json")
    return Part(
        name="console",
        command=_slipstream("console", "--port", str(choices.ports["console"]), "--log-format", choices.log_format),
        environment=_shared(choices, environment) | more,
        url=url,
        health=url + READY,
        alive=url + ALIVE,
        needs=_bus_part(choices),
        hopeless=HOPELESS,
    )
