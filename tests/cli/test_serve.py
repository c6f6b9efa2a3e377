"""`slipstream serve` as a command: its help, its flags, its exit codes."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from slipstream import __version__
from slipstream.cli import main
from slipstream.cli.serve import serve
from slipstream.settings import describe_settings
from tests import forked
from tests.conftest import StartServer
from tests.server_process import ServerProcess


def run(*arguments: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """A command that is expected to end by itself."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SLIPSTREAM_")}
    given = clean | {"COLUMNS": "200"} | (environment or {})
    return forked.run([sys.executable, "-m", "slipstream", *arguments], env=given)


def refused(*arguments: str, environment: dict[str, str] | None = None) -> Result:
    """Run a command that ends before it serves, in this process: without the start of another Python."""
    clean: dict[str, str | None] = {name: None for name in os.environ if name.startswith("SLIPSTREAM_")}
    return CliRunner().invoke(main, arguments, env=clean | {"COLUMNS": "200"} | (environment or {}))


def shown_help(columns: int) -> str:
    result = CliRunner().invoke(main, ["serve", "--help"], env={"COLUMNS": str(columns)}, terminal_width=columns)
    assert result.exit_code == 0
    return result.output


# Help


@pytest.mark.parametrize("columns", [70, 80, 110, 200])
def test_every_setting_stands_in_the_help_with_its_whole_name(columns: int) -> None:
    shown = set(re.findall(r"(?<![\w-])--[a-z0-9-]+", shown_help(columns)))
    assert {info.option for info in describe_settings()} <= shown


def test_no_option_is_undocumented() -> None:
    text = shown_help(110)
    for option in serve.params:
        for name in option.opts:
            assert re.search(rf"(?<![\w-]){name}(?![\w-])", text), f"{name} is not in the help"
        assert getattr(option, "help", ""), f"{option.opts} has no text"


def test_the_help_fits_its_terminal() -> None:
    for columns in (60, 80, 110):
        assert max(map(len, shown_help(columns).splitlines())) <= columns


def test_the_help_says_what_a_default_means() -> None:
    text = " ".join(shown_help(110).replace("│", " ").split())
    for fact in ("default 8080", "604800000 = 7 days", "1048576 = 1 MiB", "2000 = 2 s", "always, interval, off"):
        assert fact in text


def test_the_version() -> None:
    assert CliRunner().invoke(main, ["--version"]).output == f"slipstream {__version__}\n"


# Exit codes: the message names what is wrong, and there is no traceback


def assert_refused(result: Result | subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    found = result.exit_code if isinstance(result, Result) else result.returncode
    assert found == code, result.stderr
    assert "Traceback" not in result.stderr
    for word in words:
        assert word in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--port", "http"], ["--port"]),
        (["--port", "70000"], ["--port", "70000"]),
        (["--max-in-flight", "-1"], ["--max-in-flight"]),
        (["--durability", "sometimes"], ["--durability", "always"]),
        (["--nonsense"], ["--nonsense"]),
        (["--config", "/nowhere.toml"], ["/nowhere.toml"]),
        (["-addr", "8080:http"], ["--port", "http"]),
        (["-log-level", "loud"], ["--log-level", "loud"]),
        (["--router", "nonsense"], ["nonsense"]),
        (["--router", "no_such_module:route"], ["no_such_module"]),
        (["--router", "os:no_such_name"], ["os:no_such_name"]),
        (["--router", "os:sep"], ["os:sep", "callable"]),
        (["--router", "/nowhere.toml"], ["/nowhere.toml"]),
    ],
)
def test_a_setting_that_makes_no_sense_is_2(tmp_path: Path, arguments: list[str], words: list[str]) -> None:
    data = tmp_path / "data"
    assert_refused(refused("serve", "--data", str(data), "--port", "0", *arguments), 2, *words)
    assert not data.exists(), "nothing is created before everything is understood"


def test_a_bad_environment_is_2(tmp_path: Path) -> None:
    result = run("serve", "--data", str(tmp_path), environment={"SLIPSTREAM_PORT": "http"})  # in a real process
    assert_refused(result, 2, "SLIPSTREAM_PORT", "environment")


def test_a_second_process_on_the_directory_is_3_and_on_the_port_5_and_takes_nothing(
    server: ServerProcess, tmp_path: Path
) -> None:
    server.create("t")
    assert server.process is not None
    result = run("serve", "--data", str(server.data), "--port", "0")
    assert_refused(result, 3, str(server.data), str(server.process.pid))
    assert server.is_well()

    result = run("serve", "--data", str(tmp_path / "other"), "--port", str(server.port))
    assert_refused(result, 5, str(server.port), "in use")
    assert "listening" not in result.stderr

    assert_refused(run("serve", "--port", "0", "-wal", str(server.data), "-reset-wal"), 3, str(server.data))
    with server.connect():
        server.restart()  # the port is free again at once
    assert server.topics() == ["t"]
    assert server.is_well()


def test_a_directory_that_is_a_file_is_5(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("precious")
    assert_refused(refused("serve", "--data", str(file), "--port", "0"), 5, str(file))
    assert_refused(refused("serve", "--port", "0", "-wal", str(file), "-reset-wal"), 5, str(file))
    assert file.read_text() == "precious"


def test_a_damaged_directory_is_4_and_stays_as_it_is(server: ServerProcess) -> None:
    """Ruling 12."""
    server.create("t")
    for number in range(50):
        server.produce("t", str(number))
    server.crash()
    journal = next(server.data.glob("journal-*"))
    content = bytearray(journal.read_bytes())
    content[len(content) // 2] ^= 0xFF
    journal.write_bytes(content)
    assert_refused(refused("serve", "--data", str(server.data), "--port", "0"), 4, journal.name, "doctor")
    assert journal.read_bytes() == content


# DriftQ's flags


@pytest.fixture
def driftq(tmp_path: Path) -> Iterator[ServerProcess]:
    """Started as a script written for DriftQ would: the harness's own options come first and are overruled."""
    server = ServerProcess(tmp_path / "unused", "-addr", "127.0.0.1:0", "-wal", str(tmp_path / "wal"))
    yield server
    server.kill()


def test_the_flags_of_driftq_start_this_server(driftq: ServerProcess, tmp_path: Path) -> None:
    driftq.arguments += ("-log-level", "info", "-log-format", "json")
    driftq.start()
    driftq.create("t")
    assert (tmp_path / "wal" / "LOCK").exists()
    assert not (tmp_path / "unused").exists()
    assert [json.loads(line)["msg"].split(" ")[0] for line in driftq.log[:2]] == ["data", "listening"]


@pytest.mark.parametrize("address", [":0", "[::1]:0"])
def test_addr_takes_what_go_takes(tmp_path: Path, address: str) -> None:
    server = ServerProcess(tmp_path / "data", f"-addr={address}")
    try:
        server.start()
    finally:
        server.kill()
    host = "0.0.0.0" if address == ":0" else "[::1]"
    assert f"listening on http://{host}:{server.port}" in server.log[1]


def test_two_dashes_do_as_well(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "unused", "--addr", "127.0.0.1:0", "--wal", str(tmp_path / "wal"))
    try:
        server.start()
        assert server.is_well()
    finally:
        server.kill()
    assert (tmp_path / "wal" / "LOCK").exists()


def test_reset_wal_starts_afresh(driftq: ServerProcess) -> None:
    driftq.start()
    driftq.create("t")
    driftq.stop()
    driftq.start()
    assert driftq.topics() == ["t"]
    driftq.stop()
    driftq.arguments += ("-reset-wal",)
    driftq.start()
    assert driftq.topics() == []


def test_reset_wal_removes_only_what_the_store_wrote(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    assert_refused(refused("serve", "--port", "0", "-wal", str(tmp_path), "-reset-wal"), 2, str(tmp_path))
    (tmp_path / "LOCK").touch()
    (tmp_path / "journal-000000000001").write_bytes(b"old")
    server = ServerProcess(tmp_path, "-reset-wal")
    try:
        server.start()
    finally:
        server.kill()
    assert (tmp_path / "thesis.txt").read_text() == "precious"


# Sources, end to end


def test_a_config_file_reaches_the_server_and_its_logs_in_json_are_json_lines(
    start_server: StartServer, tmp_path: Path
) -> None:
    file = tmp_path / "slipstream.toml"
    file.write_text("max_body_bytes = 100\n")
    server = start_server("--config", str(file), "--log-format", "json")
    assert server.post("/v1/produce", b"x" * 101).status_code == 413
    server.stop()
    for line in server.log:
        assert {"time", "level", "logger", "msg"} <= set(json.loads(line))


def test_an_address_that_is_not_ours_is_5(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
    assert_refused(refused("serve", "--data", str(tmp_path), "--host", "192.0.2.1", "--port", "0"), 5, "192.0.2.1")


def test_a_misspelt_variable_is_logged(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = refused("serve", "--data", str(tmp_path / "file"), environment={"SLIPSTREAM_MAX_INFLIGHT": "3"})
    assert "WARNING SLIPSTREAM_MAX_INFLIGHT in the environment is no setting" in result.stderr
