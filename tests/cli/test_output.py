"""Exit codes and words when something is not well."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from slipstream import client
from slipstream.cli.output import Output, client_exit_code, payload_text, warn_if
from tests.cli.commands import Commands
from tests.cli.job_site import web_server
from tests.conftest import StartServer


def test_no_server_is_5_and_says_what_to_do(cli: Commands) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{unused.getsockname()[1]}"
        result = cli.run("topic", "list", "--server", address, expect=5)
    assert f"cannot reach {address} for /v2/topics: Connection refused; is the server running there?" in result.stderr
    assert "slipstream serve" in result.stderr
    assert result.stdout == ""


def test_an_address_that_is_none_is_typed_wrongly(cli: Commands) -> None:
    assert "Error" in cli.run("topic", "list", "--server", "ftp://nowhere", expect=2).stderr
    said = cli.run("topic", "list", "--server", "127.0.0.1:18510", expect=2).stderr
    assert "did you mean http://127.0.0.1:18510?" in said


def test_another_program_at_the_address_is_5(cli: Commands) -> None:
    base = cli.server.base
    with web_server() as other:
        said = cli.run("topic", "list", "--server", other.url, expect=5).stderr
    assert "something that is not a Slipstream broker answers at" in said
    assert (
        f"{base} answered 404, and is no service of jobs" in cli.run("jobs", "list", "--service", base, expect=5).stderr
    )


def test_each_kind_of_trouble_has_its_code() -> None:
    kinds = (client.NotFound, client.Conflict, client.Unavailable, client.ConnectionFailed, client.Overloaded)
    assert [client_exit_code(kind("why")) for kind in kinds] == [3, 4, 5, 5, 6]
    assert client_exit_code(client.InvalidArgument("why", status=400, code="INVALID_ARGUMENT")) == 1
    assert client_exit_code(client.NotFound("why", status=404, code="NOT_FOUND")) == 3
    assert client_exit_code(ValueError("a fault of ours")) is None


def test_what_asks_to_wait_is_6(start_server: StartServer) -> None:
    server = start_server("--max-waiting-messages", "1")
    cli = Commands(server, "t")
    cli.run("topic", "create", "t")
    cli.run("group", "seek", "t", "g", "--earliest")
    cli.run("produce", "t", "a")
    said = " ".join(cli.run("produce", "t", "b", expect=6).stderr.split())
    assert "t/0 is full: 1 message (1 byte) waits for the slowest group" in said


def test_errors_go_to_stderr_and_json_stays_clean(cli: Commands) -> None:
    result = cli.run("topic", "show", "nowhere", "--json", expect=3)
    assert (result.stdout, "nowhere" in result.stderr) == ("", True)


@pytest.mark.parametrize(
    ("redirected", "code"),
    [
        (">&-", 0),
        ("2>&-", 0),
        ("</dev/null | true", 0),
        ("--json | true", 0),
        (">/dev/full", 1),
        ("--json >/dev/full", 1),
    ],
)
def test_nobody_who_listens_is_no_traceback(cli: Commands, redirected: str, code: int) -> None:
    """Closed, gone before the answer, or a disk that is full."""
    command = f"{sys.executable} -m slipstream topic list {redirected}; exit ${{PIPESTATUS[0]}}"
    environment = os.environ | {"SLIPSTREAM_URL": cli.server.base}
    result = subprocess.run(["bash", "-c", command], env=environment, capture_output=True, text=True, check=False)
    assert (result.returncode, "Traceback" in result.stderr) == (code, False), result.stderr
    assert ("No space left" in result.stderr) == (code == 1)


def test_retention_that_removed_it_names_where_to_go_on() -> None:
    from slipstream.cli.output import client_advice
    from slipstream.client import OffsetOutOfRange

    assert "--from 7" in client_advice(OffsetOutOfRange("gone", earliest_offset=7))


def test_payloads_are_one_line_whatever_is_in_them() -> None:
    assert payload_text(b"a\tb\x00") == r"a\tb\x00"
    assert payload_text(b"\xff") == "base64:/w=="
    assert payload_text("grün 🙂".encode()) == "grün 🙂"


JOB = "01a1ec8f-e179-7ca5-9e3e-5b9f9f3c805e"


@pytest.mark.parametrize("width", [100, 80, 40])
def test_a_narrow_terminal_cuts_the_last_column_and_no_other(width: int, capsys: pytest.CaptureFixture[str]) -> None:
    output = Output(as_json=False)
    output.out.width = width
    said = "DOWNLOAD_HTTP_STATUS: the server answered 404"
    output.table(
        ["JOB", ">OF", "STATE", "LAST ERROR"], [(JOB, 2, warn_if(True, "partial"), said), (JOB, 1, "done", "")]
    )
    lines = capsys.readouterr().out.splitlines()
    if width == 100:
        assert lines[1].split() == [JOB, "2", "partial", *said.split()]
    elif width == 80:
        assert lines[1].startswith(f"{JOB}   2  partial  DOWNLOAD_HTTP_STATUS")
        assert lines[1].endswith("…")
    else:
        rows = "\n".join(lines).split("\n\n")
        assert rows[0].splitlines() == [
            f"JOB         {JOB}",
            "OF          2",
            "STATE       partial",
            f"LAST ERROR  {said}",
        ]
        assert rows[1].splitlines() == [f"JOB         {JOB}", "OF          1", "STATE       done"]
