"""The health port of commands, as processes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from scripts.metric_docs import of_registry
from slipstream.bus import open_bus
from slipstream.pipeline.metrics import metrics_in as pipeline_metrics
from slipstream.slip import submit
from tests.bus.sites.site import free_port
from tests.program import PATIENCE_S, Program
from tests.server_process import ServerProcess

SHOP = """
import time
from pathlib import Path

from slipstream.slip import Work, Worker

worker = Worker("shop")


@worker.step("score")
async def score(work: Work) -> None:
    while not Path("go").exists():
        time.sleep(0.01)  # without await: the loop stands still
"""


class Part:
    def __init__(self, program: Program, port: int) -> None:
        self.program = program
        self.url = f"http://127.0.0.1:{port}"

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(self.url + path, timeout=30) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def until_counted(self, line: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while line not in (text := self.get("/metrics")[1]):
            assert time.monotonic() < deadline, text
            time.sleep(0.02)

    def says(self, path: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.get(path)[1])
        return found

    def until(self, path: str, status: str, reason: str = "") -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE_S
        said: object = None
        while time.monotonic() < deadline:
            with contextlib.suppress(urllib.error.URLError):
                found = self.says(path)
                if found["status"] == status and reason in found.get("reason", ""):
                    return found
                said = found
            assert self.program.process.poll() is None, self.program.said
            time.sleep(0.02)
        raise AssertionError(f"{path} never said {status} {reason}, but {said}\n{self.program.said}")


@contextlib.contextmanager
def part(folder: Path, *arguments: str, **variables: str) -> Iterator[Part]:
    ours = ("SLIPSTREAM_", "MESSAGE_BUS_", "BUS_", "NATS_", "PUBSUB_", "SLIP_", "JOBS_", "PIPELINE_", "HEALTH_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    port = free_port()
    program = Program(
        [sys.executable, "-m", "slipstream", *arguments],
        {**kept, "NO_COLOR": "1", "HEALTH_PORT": str(port), **variables},
        folder,
    )
    try:
        yield Part(program, port)
    finally:
        program.kill()
        program.wait()


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "routes.yaml").write_text("routes:\n  loan.v1:\n    steps: [score]\n")
    (tmp_path / "shop.py").write_text(SHOP)
    return tmp_path


def metric_names(text: str) -> set[str]:
    return {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}


def test_a_worker_of_slips_is_ready_when_it_takes_work_and_not_alive_while_its_loop_stands_still(
    shop: Path, tmp_path: Path
) -> None:
    server = ServerProcess(tmp_path / "data")
    server.start()
    slip_of = {
        "MESSAGE_BUS_DRIVER": "http",
        "SLIPSTREAM_URL": server.base,
        "SLIP_STORE": str(tmp_path / "slips.db"),
        "HEALTH_STALL_MS": "1000",
        "HEALTH_TROUBLE_MS": "500",
    }
    try:
        with part(shop, "slip", "run", "--routes", "routes.yaml", "shop:worker", **slip_of) as found:
            found.until("/health/ready", "ready")
            assert found.until("/health/live", "live") == {"status": "live"}
            names = metric_names(found.get("/metrics")[1])
            assert {"step_attempts_total", "messages_inflight", "consumer_lag", "process_cpu_seconds_total"} <= names

            asyncio.run(submit_one(server.base))
            stalled = found.until("/health/live", "stalled")
            assert "its loop has not turned for" in stalled["reason"]
            assert found.get("/health/live")[0] == found.get("/health/ready")[0] == 503
            (shop / "go").touch()
            found.until("/health/live", "live")
            found.until("/health/ready", "ready")

            server.crash()
            away = found.until("/health/ready", "waiting", "no messages of")
            assert re.search(r"^for \d+ s: no messages of \S+: .*127.0.0.1", away["reason"])
            assert found.until("/health/live", "live") == {"status": "live"}
            server.start()
            found.until("/health/ready", "ready")

            assert found.program.stop() == 0
    finally:
        server.kill()


async def submit_one(url: str) -> None:
    async with open_bus(driver="http", url=url, registry=CollectorRegistry()) as bus:
        await submit(bus, "loan.v1", {"sum": 7}, source="test")


def test_who_is_asked_to_stop_finishes_what_he_has_and_says_so(shop: Path, tmp_path: Path) -> None:
    (shop / "shop.py").write_text(SHOP.replace("time.sleep(0.01)", "await asyncio.sleep(0.01)"))
    (shop / "shop.py").write_text("import asyncio\n" + (shop / "shop.py").read_text())
    server = ServerProcess(tmp_path / "data")
    server.start()
    where = {"MESSAGE_BUS_DRIVER": "http", "SLIPSTREAM_URL": server.base, "SLIP_STORE": str(tmp_path / "slips.db")}
    try:
        with part(shop, "slip", "run", "--routes", "routes.yaml", "shop:worker", **where) as found:
            found.until("/health/ready", "ready")
            asyncio.run(submit_one(server.base))
            found.until_counted('messages_inflight{driver="http",group="step-score",topic="internal.score.v1"} 1.0')
            found.program.process.send_signal(signal.SIGTERM)
            found.until("/health/ready", "stopping")
            assert found.says("/health/live") == {"status": "live"}
            (shop / "go").touch()
            assert found.program.wait() == 0
    finally:
        server.kill()


def test_a_worker_of_jobs_is_ready_when_it_takes_tasks(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "data")
    server.start()
    where = {"MESSAGE_BUS_DRIVER": "http", "SLIPSTREAM_URL": server.base, "JOBS_STORAGE": str(tmp_path / "files")}
    try:
        with part(tmp_path, "jobs", "worker", **where) as found:
            found.until("/health/ready", "ready")
            assert {"jobs_tasks_total", "jobs_task_seconds", "messages_inflight"} <= metric_names(
                found.get("/metrics")[1]
            )
            assert found.program.stop() == 0
    finally:
        server.kill()


def test_a_port_that_is_taken_is_said_and_nothing_is_started(shop: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        for command in (["slip", "run", "--routes", "routes.yaml", "shop:worker"], ["jobs", "worker"]):
            with part(shop, *command, "--health-port", port) as found:
                assert found.program.wait() == 2
                assert f"127.0.0.1:{port} cannot be listened at" in found.program.said.replace("\n", " ")


@pytest.mark.spark
def test_a_pipeline_is_ready_when_its_queries_are_started(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "data")
    server.start()
    try:
        with part(tmp_path, "pipeline", "run", SLIPSTREAM_URL=server.base, PIPELINE_TABLES="tables") as found:
            found.until("/health/ready", "starting", "Spark is being started")
            found.until("/health/ready", "ready")
            assert found.says("/health/live") == {"status": "live"}
            counted = metric_names(found.get("/metrics")[1])
            assert {each.name for each in of_registry(pipeline_metrics)} <= counted
            kill_java_of(found.program.process.pid)
            assert found.program.wait() == 1
            said = found.program.said
            assert "Error: Java, in which Spark runs, has ended with exit code -9; why is in tables/_spark.log" in said
    finally:
        server.kill()


def kill_java_of(pid: int) -> None:
    """The process of Spark itself: what Python's driver has started, and not what that has."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    (java,) = [int(child) for child in children if Path(f"/proc/{child}/exe").resolve().name == "java"]
    os.kill(java, signal.SIGKILL)
