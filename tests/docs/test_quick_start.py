"""The quick start, as a new user goes through it: `slipstream up` with all its parts, and every command on the page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from slipstream.up.plan import DEMO_NETWORK
from tests.bus.sites.site import free_port
from tests.docs.examples import BIN
from tests.docs.following import follow
from tests.docs.pages import QUICK_START, ROOT, blocks, commands, section
from tests.program import PATIENCE_S, Program

PARTS = {
    "broker": "--port",
    **{name: f"--{name}-port" for name in ("jobs", "downloads", "slips", "pipeline", "console")},
}
FILES = "127.83.0.1"


def free_ports(count: int) -> set[int]:
    found: set[int] = set()
    while len(found) < count:
        found.add(free_port())
    return found


class Platform:
    """`slipstream up` in a folder, on free ports, and a shell there in which the commands find it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        ports = dict(zip(PARTS, free_ports(len(PARTS)), strict=True))
        environment = {name: os.environ[name] for name in ("PATH", "HOME", "JAVA_HOME") if name in os.environ}
        environment["PATH"] = f"{BIN}{os.pathsep}{environment['PATH']}"
        options = [text for name, option in PARTS.items() for text in (option, str(ports[name]))]
        self.up = Program([sys.executable, "-m", "slipstream", "up", *options], environment, folder)
        self.environment = environment | {
            "SLIPSTREAM_URL": f"http://127.0.0.1:{ports['broker']}",
            "JOBS_URL": f"http://127.0.0.1:{ports['jobs']}",
        }
        self.port_of_files = free_port()
        self.server: Program | None = None

    def serve_files(self, line: str) -> None:
        """What the page has in a third terminal."""
        self.server = Program(["bash", "-c", "exec 2>&1; " + self._here(line)], self.environment, self.folder)
        until = time.monotonic() + PATIENCE_S
        address = f"http://{FILES}:{self.port_of_files}/"
        while subprocess.run(["curl", "-s", address], capture_output=True, check=False).returncode:
            assert time.monotonic() < until, self.server.said
            time.sleep(0.05)

    def type(self, line: str) -> str:
        result = subprocess.run(
            ["bash", "-c", self._here(line)],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        return result.stdout.replace(f"{FILES}:{self.port_of_files}", f"{FILES}:8000")

    def _here(self, line: str) -> str:
        return line.replace(f"{FILES}:8000", f"{FILES}:{self.port_of_files}").replace(
            "http.server 8000", f"http.server {self.port_of_files}"
        )

    def close(self) -> None:
        if self.server is not None:
            self.server.kill()
        if self.up.process.poll() is None:
            assert self.up.stop() == 0, self.up.said


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[Platform]:
    platform = Platform(tmp_path)
    try:
        yield platform
    finally:
        platform.close()


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_the_quick_start_goes_as_it_says(platform: Platform) -> None:
    typed = [command for block in blocks(QUICK_START, "console") for command in commands(block)]
    assert len(typed) >= 15
    for name in ("broker", "jobs", "downloads", "slips"):
        platform.up.wait_for(rf"\b{name} is ready at ")
    (serve,) = [block for block in blocks(QUICK_START, "sh") if "http.server" in block]
    platform.serve_files(serve)
    for command in typed:
        if command.line.startswith("slipstream table "):
            platform.up.wait_for(r"\bpipeline is ready at ")  # asking meanwhile would take the processor from Spark
        follow(command, platform.type, lambda: platform.up.said)


def test_it_begins_and_ends_with_make() -> None:
    made = re.findall(r"^make (\w+)", "\n".join(blocks(QUICK_START, "sh")), re.MULTILINE)
    assert made == ["run", "demo"]
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(made) <= set(targets)


def test_the_address_that_files_come_from_is_allowed() -> None:
    assert f"{FILES}/32" == DEMO_NETWORK
    assert f"http://{FILES}:8000/" in section(QUICK_START, "5. A download")
