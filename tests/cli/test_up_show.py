"""How `slipstream up` looks: calm on a terminal, plain in a file, JSON for machines."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from slipstream.cli.up_show import JsonPage, Panel, TextPage, UpShow
from slipstream.up import Part, PartStatus, State

PARTS = [
    Part(name="broker", command=("x",), url="http://127.0.0.1:8080"),
    Part(name="pipeline", command=("x",), url="http://127.0.0.1:8072", patience="it takes a while"),
]
URL = "http://127.0.0.1:8080/"
EXPORTS = {"SLIPSTREAM_DATA": "/srv/my data", "JOBS_URL": "http://127.0.0.1:9090"}


class Terminal:
    """With a panel, as where a person looks; the rest as where nobody does."""

    def __init__(self, *, is_terminal: bool) -> None:
        self._out = io.StringIO()
        console = Console(file=self._out, force_terminal=is_terminal, width=100, no_color=True, highlight=False)
        self.page = TextPage(console, [part.name for part in PARTS])
        self.panel = Panel(console, self.page, PARTS) if is_terminal else None
        self.show = UpShow(self.page, PARTS, URL, EXPORTS, self.panel)

    @property
    def text(self) -> str:
        """Without what moves the cursor, and makes things dim."""
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", self._out.getvalue())


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    found = Terminal(is_terminal=True)
    yield found
    assert found.panel is not None
    found.panel.close()


def status(name: str, state: State, reason: str = "", restarts: int = 0, pid: int | None = None) -> PartStatus:
    url = next(part.url for part in PARTS if part.name == name)
    pid = 7 if state in {"running", "starting"} else pid
    return PartStatus(name=name, state=state, pid=pid, reason=reason, restarts=restarts, url=url, since_ms=1)


def test_in_a_file_every_line_has_the_name_of_its_part() -> None:
    file = Terminal(is_terminal=False)
    file.show.changed(status("broker", "starting"))
    file.show.said("broker", "listening\ton \x1b[31mhere")
    file.show.changed(status("broker", "running"))
    file.show.changed(status("pipeline", "starting"))
    said = re.sub(r"after \d+\.\d s", "after N s", file.text)
    assert said.splitlines() == [
        "up       | broker is started",
        "broker   | listening       on \\x1b[31mhere",
        "up       | broker is ready at http://127.0.0.1:8080, after N s",
        "up       | pipeline is started: it takes a while",
    ]


def test_on_a_terminal_what_a_part_says_while_it_starts_is_shown_only_if_it_fails(terminal: Terminal) -> None:
    for name in ("broker", "pipeline"):
        terminal.show.changed(status(name, "starting"))
        terminal.show.said(name, f"words of {name}")
    terminal.show.changed(status("broker", "running"))
    assert "words of" not in terminal.text
    terminal.show.changed(status("pipeline", "crashed", "exit code 1: no Java; started again in 1 s"))
    assert "pipeline | words of pipeline" in terminal.text
    assert "up       | pipeline crashed: exit code 1: no Java; started again in 1 s" in terminal.text
    assert "words of broker" not in terminal.text


def test_once_everything_runs_there_is_a_table_and_lines_are_shown(terminal: Terminal) -> None:
    for name in ("broker", "pipeline"):
        terminal.show.changed(status(name, "running"))
    terminal.show.started([status("broker", "running"), status("pipeline", "stopped", "exit code 2")])
    assert "PART      WHERE                  STATE" in terminal.text
    assert "pipeline  http://127.0.0.1:8072  stopped" in terminal.text
    assert f"open {URL}" in terminal.text
    exported = "export SLIPSTREAM_DATA='/srv/my data' JOBS_URL=http://127.0.0.1:9090\n"
    assert f"for commands in other terminals: {exported}" in terminal.text
    terminal.show.said("broker", "somebody came")
    assert "broker   | somebody came" in terminal.text


def test_a_part_that_comes_back_and_one_that_does_not_end_are_said(terminal: Terminal) -> None:
    terminal.show.changed(status("broker", "running"))
    terminal.show.started([status("broker", "running")])
    terminal.show.changed(status("broker", "crashed", "killed by SIGKILL; started again in 1 s", restarts=1))
    terminal.show.changed(status("broker", "starting", restarts=2))
    terminal.show.changed(status("broker", "running", restarts=2))
    assert "broker runs again, after 2 restarts" in terminal.text
    terminal.show.stopping([status("broker", "running")])
    terminal.show.said("broker", "I cannot")
    assert "stopping broker; Ctrl-C again kills" in terminal.text
    assert "I cannot" not in terminal.text
    terminal.show.killed("broker", 30_000)
    assert "broker   | I cannot" in terminal.text
    assert "broker has not ended after 30 s and is killed" in terminal.text


def test_a_part_that_takes_no_work_for_a_while_is_said_once_and_when_it_does_again(terminal: Terminal) -> None:
    for name in ("broker", "pipeline"):
        terminal.show.changed(status(name, "waiting", f"needs what {name} needs"))
        terminal.show.changed(status(name, "starting"))
        terminal.show.changed(status(name, "running"))
    terminal.show.started([status("broker", "running"), status("pipeline", "running")])
    for seconds in (12, 17):
        terminal.show.changed(status("broker", "waiting", f"for {seconds} s: the disk is full", pid=7))
    terminal.show.said("broker", "no room")
    terminal.show.changed(status("broker", "running"))
    told = terminal.text[terminal.text.index("Ctrl-C stops it") :]
    assert re.findall(r"^(?:up|broker) +\| (.*)$", told, re.MULTILINE) == [
        "broker takes no work: for 12 s: the disk is full",
        "no room",
        "broker takes work again",
    ]
    assert "needs what" not in told
    terminal.show.changed(status("broker", "waiting", "the disk is full", pid=7))
    terminal.show.stopping([status("broker", "waiting", pid=7)])
    terminal.show.changed(status("broker", "stopped"))
    assert "stopping broker; Ctrl-C again kills" in terminal.text
    assert "broker has stopped" in terminal.text


def test_lines_that_nobody_reads_are_counted() -> None:
    out, is_behind = io.StringIO(), False
    page = TextPage(Console(file=out, width=100, no_color=True), ["broker"], lambda: is_behind)
    page.line("broker", "one")
    is_behind = True
    page.line("broker", "two")
    page.line("broker", "three")
    is_behind = False
    page.line("broker", "four")
    assert out.getvalue().splitlines() == [
        "broker | one",
        "up     | 2 lines not shown: what parts say is in their logs",
        "broker | four",
    ]


PRINT = """
import asyncio, sys
from pathlib import Path
from slipstream.cli.up_show import open_show
from slipstream.up import Part, Supervisor, load_settings

part = Part(name="broker", command=(sys.executable, "-u", "-c", sys.argv[2]))
with open_show([part], sys.argv[3], "", {}) as show:
    sys.exit(asyncio.run(Supervisor([part], Path(sys.argv[1]), load_settings({}), show).run()))
"""

TALKATIVE = """
import time
for number in range(4_000):
    print(number, "x" * 1_000)
print("all was said")
time.sleep(1_000)
"""


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_reader_who_does_not_read_stops_neither_the_parts_nor_their_end(tmp_path: Path, log_format: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PRINT, str(tmp_path), TALKATIVE, log_format], stdout=subprocess.PIPE
    )
    with process:
        try:
            until = time.monotonic() + 60
            log = tmp_path / "broker.log"
            while not log.exists() or b"all was said" not in log.read_bytes():
                assert time.monotonic() < until, "the part waits for somebody to read"
                time.sleep(0.05)
            process.terminate()
            assert process.wait(60) == 0
        finally:
            process.kill()


def test_for_machines_a_line_is_an_object_with_its_part() -> None:
    out = io.StringIO()
    show = UpShow(JsonPage(out), PARTS, URL, EXPORTS, None)
    show.said("broker", '{"level": "info", "msg": "listening"}')
    show.said("broker", "no JSON")
    show.said("broker", "[1]")
    show.started([status("broker", "running")])
    show.started([status("broker", "running"), status("pipeline", "crashed", "exit code 1")])
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert lines == [
        {"part": "broker", "level": "info", "msg": "listening"},
        {"part": "broker", "msg": "no JSON"},
        {"part": "broker", "msg": "[1]"},
        {"part": "up", "msg": "everything runs"},
        {"part": "up", "msg": "everything runs but pipeline"},
    ]
