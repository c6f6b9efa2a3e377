"""What the pages show is what happens: their commands are run, and their outputs compared."""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path

import pytest

from slipstream.api import TopicConfigFields
from slipstream.client import Client
from tests.conftest import StartServer
from tests.docs.examples import plain, program, run_command, run_console, run_line, run_page
from tests.docs.pages import FIRST_MINUTE, OPERATIONS, README, Command, blocks, commands, fences, section
from tests.server_process import ServerProcess
from tests.store.node import cut, flip


@pytest.mark.skipif(shutil.which("curl") is None, reason="the page speaks curl")
def test_the_first_minute_goes_as_it_says(server: ServerProcess) -> None:
    assert len([command for block in blocks(FIRST_MINUTE, "console") for command in commands(block)]) > 8
    run_page(FIRST_MINUTE, server)


def test_the_readme_goes_as_it_says(server: ServerProcess, tmp_path: Path) -> None:
    """Two orders are produced, the worker bills one and rejects the other, which is a dead letter then."""
    before, after = blocks(README, "console")
    run_console(before, server)
    with Client(server.base) as client, program(README, "billing.py", server, tmp_path) as printed:
        while not any(topic.name == "dlq.orders" for topic in client.topics()):
            time.sleep(0.01)
    assert printed == ["billed two books"]
    assert f"`{printed[0]}`" in README.read_text()
    run_console(after, server)


def session(title: str) -> list[Command]:
    """The commands in a section of operations."""
    found = fences(section(OPERATIONS, title))
    return [command for language, block in found if language == "console" for command in commands(block)]


def test_stuck_messages_are_found_and_freed_as_the_page_says(server: ServerProcess) -> None:
    with Client(server.base) as client:
        client.create_topic("orders", config=TopicConfigFields(max_in_flight=2))
        client.produce_batch("orders", ["nobody's", "two books", "one lamp", "a chair"])
        (dead,) = client.fetch("orders", "billing", max_messages=1)
        dead.nack("no such customer", retryable=False)
        failing, _ = client.fetch("orders", "billing", owner="w1", lease_ms=60_000)
        failing.nack("the bank is closed", delay_ms=600_000)
    found = session("Messages are stuck")
    assert len(found) > 8
    for command in found:
        assert plain(run_command(command.line, server)) == plain(command.output), command.line


@pytest.fixture
def directory(start_server: StartServer, tmp_path: Path) -> Path:
    """What the samples of the doctor were made from; returns where `slipstream-data` is."""
    server = start_server(data=tmp_path / "slipstream-data")
    server.create("orders")
    for value in ("a", "b", "c"):
        server.produce("orders", value)
    server.crash()
    return tmp_path


def frames(directory: Path) -> tuple[Path, list[int]]:
    journal = directory / "slipstream-data" / "journal-000000000001"
    return journal, [found.start() for found in re.finditer(rb"SLFR", journal.read_bytes())]


def leave(directory: Path) -> None:
    """Healthy."""


def tear(directory: Path) -> None:
    journal, _ = frames(directory)
    cut(journal, journal.stat().st_size - 7)


def damage(directory: Path) -> None:
    journal, starts = frames(directory)
    flip(journal, starts[2] + 30)


@pytest.mark.parametrize(("number", "prepare"), [(0, leave), (1, tear), (2, damage), (3, damage)])
def test_the_doctor_says_what_the_page_shows(directory: Path, number: int, prepare: object) -> None:
    assert callable(prepare)
    prepare(directory)
    samples = session("Doctor")
    assert len(samples) == 4
    output = run_line(samples[number].line, directory=directory)
    assert without_places(output) == without_places(samples[number].output)


def without_places(output: str) -> str:
    """Where the copy is depends on the machine, and positions on how the commits fell into frames."""
    for place in (
        r"(?<=as it was: ).*/",
        r"(?<=before-repair-)\w+",
        r"(?<=byte )\d+",
        r"(?<=says )\d+",
        r"(?<=has )\d+",
        r"\d+(?= bytes)",
    ):
        output = re.sub(place, "N", output)
    return output
