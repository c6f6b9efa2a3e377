"""Which parts there are, and what each is started with."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from slipstream.up import Part
from slipstream.up.plan import OPTIONAL, PORTS, Choices, console_url, exports, hosts_of, plan

DATA = Path("/srv/data")


def parts(environment: dict[str, str] | None = None, **given: Any) -> dict[str, Part]:
    found = plan(
        Choices(**{"data": DATA, "ports": {**PORTS, "nats": 4222, "nats-health": 8222}, **given}), environment or {}
    )
    return {part.name: part for part in found}


def test_everything_runs_on_the_broker_by_default() -> None:
    found = parts()
    assert list(found) == ["broker", "jobs", "downloads", "slips", "console", "pipeline"]
    assert all(part.needs == ("broker",) for name, part in found.items() if name != "broker")
    assert all(part.health.startswith(part.url + "/") for part in found.values())
    for name, part in found.items():
        if name != "broker":
            assert part.environment["MESSAGE_BUS_DRIVER"] == "http"
            assert part.environment["SLIPSTREAM_URL"] == "http://127.0.0.1:8080"
            assert part.environment["SLIP_STORE"] == "/srv/data/slips.db"
    assert found["console"].environment["SLIPSTREAM_PARTS"] == "/srv/data/up/parts.json"
    assert found["broker"].environment["SLIPSTREAM_CONSOLE_URL"] == "http://127.0.0.1:8070"
    assert found["pipeline"].environment["PIPELINE_TABLES"] == "/srv/data/tables"


@pytest.mark.parametrize("name", OPTIONAL)
def test_what_is_not_wanted_is_left_out(name: str) -> None:
    found = parts(without=frozenset({name}))
    assert set(parts()) - set(found) == {name}


def test_without_a_console_the_broker_does_not_look_for_one() -> None:
    assert "SLIPSTREAM_CONSOLE_URL" not in parts(without=frozenset({"console"}))["broker"].environment


def test_what_the_user_has_set_wins() -> None:
    mine = {"SLIP_STORE": "redis://10.0.0.1", "JOBS_ALLOW_NETWORKS": "", "PIPELINE_TABLES": " "}
    found = parts(mine)
    assert "SLIP_STORE" not in found["slips"].environment
    assert "JOBS_ALLOW_NETWORKS" not in found["downloads"].environment, "also who allows nothing means it"
    assert found["pipeline"].environment["PIPELINE_TABLES"] == "/srv/data/tables", "an empty variable says nothing"


def test_downloads_may_reach_the_web_server_of_the_demonstration_and_nothing_else_inside() -> None:
    assert parts()["downloads"].environment["JOBS_ALLOW_NETWORKS"] == "127.83.0.1/32"
    assert not [
        name for name, part in parts().items() if name != "downloads" and "JOBS_ALLOW_NETWORKS" in part.environment
    ]


def test_on_nats_there_is_no_broker_and_the_console_has_its_port() -> None:
    ports = {**PORTS, "nats": 4222, "nats-health": 8222, "console": 8080}
    found = parts(bus="nats", nats_url="nats://127.0.0.1:4222", nats_server="/usr/bin/nats-server", ports=ports)
    assert list(found) == ["nats", "jobs", "downloads", "slips", "console", "pipeline"]
    assert found["console"].url == "http://127.0.0.1:8080"
    assert found["nats"].is_vital
    for name, part in found.items():
        if name != "nats":
            assert part.needs == ("nats",)
            assert part.environment["MESSAGE_BUS_DRIVER"] == "nats"
            assert part.environment["PIPELINE_BUS"] == "nats"
            assert part.environment["NATS_URL"] == "nats://127.0.0.1:4222"


def test_a_nats_that_runs_already_is_not_started() -> None:
    found = parts(bus="nats", nats_url="nats://10.0.0.7:4222")
    assert "nats" not in found
    assert all(part.needs == () for part in found.values())


def test_the_console_is_where_the_broker_is_and_on_nats_where_it_is_itself() -> None:
    choices = Choices(data=DATA, ports=PORTS)
    assert console_url(choices) == "http://127.0.0.1:8080/"
    assert console_url(replace(choices, bus="nats")) == "http://127.0.0.1:8070/"
    assert console_url(replace(choices, bus="nats", without=frozenset({"console"}))) == ""


def test_commands_are_told_the_directory_and_the_addresses_that_are_not_the_usual_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    here = Choices(data=Path("data"), ports=PORTS)
    data = {"SLIPSTREAM_DATA": str(tmp_path / "data")}
    assert exports(here) == data
    moved = replace(here, ports={**PORTS, "broker": 9000, "jobs": 9090})
    assert exports(moved) == data | {"SLIPSTREAM_URL": "http://127.0.0.1:9000", "JOBS_URL": "http://127.0.0.1:9090"}
    assert exports(replace(moved, without=frozenset({"jobs"}))).keys() == {"SLIPSTREAM_DATA", "SLIPSTREAM_URL"}
    nats = replace(here, bus="nats", nats_url="nats://127.0.0.1:4333")
    assert exports(nats) == data | {"MESSAGE_BUS_DRIVER": "nats"}
    assert exports(replace(nats, nats_server="nats-server"))["NATS_URL"] == "nats://127.0.0.1:4333"


def test_parts_that_listen_elsewhere_are_asked_there() -> None:
    said = {"SLIPSTREAM_HOST": "10.0.0.5", "JOBS_HOST": "0.0.0.0", "CONSOLE_HOST": "fd00::1"}
    hosts = hosts_of(said)
    assert hosts == {"broker": "10.0.0.5", "console": "fd00::1"}, "who listens everywhere is found here"
    found = parts(said, hosts=hosts)
    assert found["broker"].health == "http://10.0.0.5:8080/health/ready"
    assert found["console"].url == "http://[fd00::1]:8070"
    assert found["slips"].environment["SLIPSTREAM_URL"] == "http://10.0.0.5:8080"


def test_every_part_logs_in_the_form_that_is_asked_for() -> None:
    for part in parts(log_format="json").values():
        assert part.command[part.command.index("--log-format") + 1] == "json", part.name


@pytest.mark.parametrize("name", [*OPTIONAL, "broker"])
def test_a_file_beside_whoever_starts_it_is_not_taken_for_a_library(tmp_path: Path, name: str) -> None:
    (tmp_path / "msgspec.py").write_text("raise SystemExit('mine was imported')")
    command = parts()[name].command
    asked = (*command[: command.index("slipstream") + 1], "--version")
    found = subprocess.run(asked, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stderr) == (0, "")
