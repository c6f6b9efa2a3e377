"""`slipstream up`: the whole platform, in real processes."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
from pathlib import Path

import httpx
import pytest
from prometheus_client import CollectorRegistry

from slipstream.bus import open_bus
from slipstream.cli.output import Output
from slipstream.cli.up import CannotStart, choose
from slipstream.demo.slips import send
from slipstream.demo.web import Web, write_files
from slipstream.jobs.client import JobsClient
from slipstream.up.plan import PORTS
from slipstream.up.ports import free_port
from tests.cli.platform import Platform, platform

LIGHT = ("--without", "pipeline", "--without", "console")
STARTED = r"slipstream demo, in another terminal"


def test_it_starts_everything_after_a_kill_brings_back_what_crashed_and_drains_at_ctrl_c(tmp_path: Path) -> None:
    with platform(tmp_path, *LIGHT, "--without", "slips") as killed:
        killed.wait_for(STARTED)
        left = killed.file()
        killed.process.send_signal(signal.SIGKILL)
        killed.wait()
    with platform(tmp_path, "--without", "pipeline") as up:
        up.wait_for(STARTED)
        up.until_gone(left)
        assert re.search(r"PART +WHERE +STATE", up.said)
        for name in ("broker", "jobs", "downloads", "slips", "console"):
            assert re.search(rf"^{name} +http://127.0.0.1:\d+/? +running", up.said, re.MULTILINE), up.said
        assert f"open {up.part('broker').url}/\n" in up.said
        assert up.said.count(f"{up.part('console').url}/") == 0, "one address of the console"
        shown = httpx.get(f"{up.part('broker').url}/v2/parts", timeout=30).json()["parts"]
        assert {part["name"]: part["state"] for part in shown} == {part.name: "running" for part in up.file().parts}

        before = up.part("slips")
        assert before.pid is not None
        os.kill(before.pid, signal.SIGKILL)
        after = up.until("slips", "running", restarts=1)
        assert after.pid not in {None, before.pid}
        assert up.wait_for(r"slips crashed: killed by SIGKILL; started again in 1 s")
        assert up.wait_for(r"slips runs again, after one restart")

        parts = up.file()
        assert up.interrupt() == 0, up.said
        assert up.is_gone(parts)
        ends = re.findall(r"up +\| (\w+) has stopped", up.said)
        assert sorted(ends) == ["broker", "console", "downloads", "jobs", "slips"]
        assert ends[-1] == "broker", "those that consume end before it"
        assert "listening on" in (tmp_path / "up" / "broker.log").read_text()
        for name in ("slips.db", "jobs.db"):
            assert (tmp_path / name).exists(), "everything is inside of the directory"


def test_on_nats_a_slip_and_a_job_work(tmp_path: Path) -> None:
    with platform(tmp_path, *LIGHT, "--bus", "nats", NATS_URL=f"nats://127.0.0.1:{free_port()}") as up:
        up.wait_for(STARTED)
        assert "nobody answers at NATS_URL" in up.said
        assert [part.name for part in up.file().parts] == ["nats", "jobs", "downloads", "slips"]
        done = asyncio.run(_send_slips(up, tmp_path))
        assert done == {"slips": 9, "dead letters": 2, "waiting": 1, "fetched": 1}
        assert any((tmp_path / "nats").rglob("*.blk")), "JetStream keeps its streams in the data directory"
        parts = up.file()
        assert up.interrupt() == 0
        assert up.is_gone(parts)


async def _send_slips(up: Platform, folder: Path) -> dict[str, int]:
    files = write_files(folder / "demo")
    async with (
        asyncio.timeout(60),
        Web(files[0].parent).serving() as web,
        open_bus(driver="nats", nats_url=up.part("nats").url, registry=CollectorRegistry()) as bus,
        JobsClient(up.part("jobs").url) as jobs,
    ):
        found = await send(bus, "run", f"{web.url}/fine/{files[0].name}", lambda done, total: None)
        page = await jobs.jobs(job_type="attachments")
        return {
            "slips": len(found.having("completed")),
            "dead letters": len(found.having("dead-lettered")),
            "waiting": len(found.having("waiting")),
            "fetched": sum(job.resources_completed for job in page.jobs),
        }


def test_a_nats_that_answers_is_used(tmp_path: Path) -> None:
    """Somebody else's: nothing of it is started or stopped here."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        command_env = {"NATS_URL": f"nats://127.0.0.1:{server.getsockname()[1]}", "UP_STOP_TIMEOUT_MS": "1000"}
        with platform(
            tmp_path, *LIGHT, "--without", "slips", "--without", "jobs", "--bus", "nats", **command_env
        ) as up:
            connection, _ = server.accept()
            with connection:
                connection.sendall(b'INFO {"server_id": "x"}\r\n')
            up.wait_for("downloads is started")
            assert [part.name for part in up.file().parts] == ["downloads"]


@pytest.mark.parametrize(
    ("named", "shown"),
    [
        ("nats://192.0.2.1:4222", "192.0.2.1:4222"),
        ("tls://ada:secret@nats.invalid", "nats.invalid:4222"),
        ("127.0.0.1:9,nats://192.0.2.1:4222", "127.0.0.1:9, 192.0.2.1:4222"),
    ],
)
def test_a_nats_elsewhere_that_does_not_answer_is_not_replaced_by_an_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str, shown: str
) -> None:
    monkeypatch.setenv("NATS_URL", named)
    monkeypatch.setattr("slipstream.cli.up._answers", lambda host, port: False)
    with pytest.raises(CannotStart, match=f"answers at NATS_URL, {re.escape(shown)}: start it, or unset"):
        choose(tmp_path, "nats", (), {**PORTS, "nats": 0}, "text", Output(as_json=False))


@pytest.mark.parametrize("named", ["", "nats://localhost:4222", "127.0.0.1", "nats://[::1]:4222"])
def test_on_this_machine_one_is_started_where_none_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    monkeypatch.setenv("NATS_URL", named)
    monkeypatch.setattr("slipstream.cli.up._answers", lambda host, port: False)
    ports = {**dict.fromkeys(PORTS, 0), "nats": 0}
    choices = choose(tmp_path, "nats", (), ports, "text", Output(as_json=False))
    assert choices.nats_server
    assert choices.nats_url == f"nats://127.0.0.1:{choices.ports['nats']}"


def test_a_directory_has_one_and_for_machines_every_line_is_json_with_its_part(tmp_path: Path) -> None:
    only_broker = (*LIGHT, "--without", "slips", "--without", "jobs", "--without", "downloads")
    with platform(tmp_path, *only_broker, "--log-format", "json") as up:
        up.wait_for("everything runs")
        with platform(tmp_path, *only_broker) as second:
            assert second.wait() == 3
        assert f"another `slipstream up` (process {up.process.pid}) runs on {tmp_path}" in second.said
        assert "--data" in second.said
        assert up.interrupt() == 0
        lines = [json.loads(line) for line in up.lines]
        assert {line["part"] for line in lines} == {"up", "broker"}
        assert any("listening on" in line["msg"] and line["level"] == "info" for line in lines)


def test_ports_that_are_taken_are_said_before_anything_is_started(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as first, socket.create_server(("127.0.0.1", 0)) as second:
        taken = [first.getsockname()[1], second.getsockname()[1]]
        with platform(tmp_path, *LIGHT, "--port", str(taken[0]), "--jobs-port", str(taken[1])) as up:
            assert up.wait() == 5
    assert "nothing was started" in up.said
    assert f"port {taken[0]}, for broker: another program has it; stop it, or choose another with --port" in up.said
    assert f"port {taken[1]}, for jobs: another program has it; stop it, or choose another with --jobs-port" in up.said
    assert not (tmp_path / "up" / "parts.json").exists()


def test_a_port_that_two_are_to_have_is_said_before_anything_is_started(tmp_path: Path) -> None:
    port = str(free_port())
    with platform(tmp_path, *LIGHT, "--port", port, "--jobs-port", port) as up:
        assert up.wait() == 5
    assert f"port {port} is wanted for broker and jobs: choose another with --port or --jobs-port" in up.said
    assert not (tmp_path / "up" / "parts.json").exists()


def test_a_broker_that_cannot_start_ends_it_with_words(tmp_path: Path) -> None:
    with platform(tmp_path, *LIGHT, SLIPSTREAM_MAX_IN_FLIGHT="many") as up:
        assert up.wait() == 2
    assert re.search(r"broker cannot run: exit code 2: .*a setting makes no sense: mend it, and start again", up.said)
    assert "jobs is started" not in up.said


def test_a_setting_of_its_own_that_makes_no_sense_is_refused(tmp_path: Path) -> None:
    with platform(tmp_path, *LIGHT, UP_LOG_FILES="-1") as up:
        assert up.wait() == 2
    assert "UP_LOG_FILES" in up.said
