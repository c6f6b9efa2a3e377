"""The example of the bus is run as a user would run it: on one engine after the other, by the environment alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tests.bus.sites.site import Site
from tests.forked import run

APP = Path(__file__).parents[2] / "examples" / "bus_app.py"

SAID = [
    "all done",
    "counted a dragon",
    "counted one lamp",
    "counted three pens",
    "counted two books",
    "dead letter: a dragon, because we do not ship dragons",
    "shipped one lamp to Bremen",
    "shipped three pens to Bremen",
    "shipped two books to Bremen",
]


@pytest.fixture
def environment(site: Site) -> dict[str, str]:
    """The engine that the suite of the bus runs on, with topics of this test alone."""
    return os.environ | site.environment() | {"BUS_PREFIX": f"app-{uuid.uuid4().hex[:8]}."}


def test_it_does_its_work_and_ends_the_first_time_and_the_second(environment: dict[str, str]) -> None:
    for _ in range(2):
        ended = run([sys.executable, APP], env=environment)
        assert ended.returncode == 0, ended.stderr
        assert sorted(ended.stdout.splitlines()) == SAID, ended.stderr
        assert "Traceback" not in ended.stderr


def test_ctrl_c_ends_it_and_the_next_one_does_what_it_left(environment: dict[str, str]) -> None:
    with subprocess.Popen(
        [sys.executable, APP], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        first = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        # Not communicate(), which does not know of what readline() has read beyond its line.
        rest, error = process.stdout.read(), process.stderr.read()
    if "all done" not in rest:  # else the signal may have come to an interpreter that was on its way out
        assert (process.returncode, "Traceback" in error) == (0, False), error
    ended = run([sys.executable, APP], env=environment)
    said = [*first.splitlines(), *rest.splitlines(), *ended.stdout.splitlines()]
    assert said[-1] == "all done", ended.stderr
    assert set(said) == set(SAID)
