"""`slipstream slip run` as a process with a broker inside, and the same store seen from outside."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.slips import Slips
from tests.forked import Forked

ROUTES = """
routes:
  loan.v1:
    steps:
      - score
      - {id: manager, wait: approval, deadline: 1h}
      - pay
"""

SHOP = """
import asyncio
import contextlib
import signal
from pathlib import Path

from slipstream.slip import Router, Work, Worker, submit


class Shop(Worker):
    '''Has something to do as soon as it runs: nobody outside can publish on a bus that is inside.'''

    @contextlib.asynccontextmanager
    async def running(self, bus, store, settings=None):
        async with super().running(bus, store, settings):
            await submit(bus, "loan.v1", {"sum": 7}, source="test", correlation_id="c-1")
            yield


worker = Shop("shop")
router = Router("routes.yaml")
number = 7


@worker.step("score")
async def score(work: Work) -> None:
    work.payload["score"] = 9


@worker.step("pay")
async def pay(work: Work) -> None:
    Path("paying").touch()
    while not Path("go").exists():
        await asyncio.sleep(0.01)
    work.payload["paid"] = True
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "routes.yaml").write_text(ROUTES)
    (tmp_path / "shop.py").write_text(SHOP)
    return tmp_path


def environment(directory: Path, **variables: str) -> dict[str, str]:
    """Without any bus or store but those of the directory."""
    ours = ("SLIPSTREAM_", "MESSAGE_BUS_", "BUS_", "NATS_", "PUBSUB_", "SLIP_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    bus = {"MESSAGE_BUS_DRIVER": "embedded", "SLIP_POLL_MS": "20"}
    return {**kept, **bus, "SLIP_STORE": str(directory / "slips.db"), "NO_COLOR": "1", **variables}


@contextlib.contextmanager
def running(directory: Path, *arguments: str, **variables: str) -> Iterator[Forked]:
    with Forked(
        [sys.executable, "-m", "slipstream", "slip", *arguments],
        cwd=directory,
        env=environment(directory, **variables),
        stderr=subprocess.PIPE,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def refused(directory: Path, *arguments: str, **variables: str) -> str:
    with running(directory, *arguments, **variables) as process:
        _, error = process.communicate(timeout=60)
    assert process.returncode == 2, error
    assert "Traceback" not in error
    return error


def until(question: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 30
    while not (answer := question()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return answer


@pytest.mark.parametrize("what", [["--routes", "routes.yaml", "shop:worker"], ["shop:router", "shop:worker"]])
def test_a_message_is_seen_and_approved_from_outside_while_the_process_runs(shop: Path, what: list[str]) -> None:
    slips = Slips(shop / "slips.db")

    def standing() -> Any:
        if not slips.store.exists() or not slips.lines("list"):
            return {}
        return slips.json("show", "c-1")["standing"]

    with running(shop, "run", *what) as process:
        until(lambda: standing().get("going") == "approval")
        assert slips.said("show", "c-1").splitlines()[-1].endswith("slipstream slip approve c-1 manager")
        slips.run("approve", "c-1", "manager", "--by", "ada")
        until((shop / "paying").exists)
        assert until(lambda: standing()["going"] == "at work" and standing())["step"] == "pay"
        process.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        assert process.poll() is None, "it has to finish what is at work"
        (shop / "go").touch()
        _, error = process.communicate(timeout=30)
    assert process.returncode == 0, error
    assert "at work on the embedded bus; stop with SIGTERM or Ctrl-C" in error
    assert "Traceback" not in error
    found = slips.json("show", "c-1")
    assert [(row["step"], row["state"]) for row in found["runs"][0]["rows"]][-1] == ("pay", "done")

    with running(shop, "run", *what):
        until(lambda: standing()["going"] == "completed")
    assert "approved by ada" in slips.said("show", "c-1")


# What is refused before anything runs


def test_a_route_table_that_is_wrong_is_refused_with_all_its_problems(shop: Path) -> None:
    (shop / "bad.yaml").write_text("routes:\n  a.v1:\n    stepz: [x]\n  b.v1:\n    steps: [{id: y, wait: never}]\n")
    error = refused(shop, "run", "--routes", "bad.yaml", "shop:worker")
    assert "bad.yaml:3: " in error
    assert "bad.yaml:5: " in error
    assert "gone.yaml" in refused(shop, "run", "--routes", "gone.yaml", "shop:worker")


def test_what_cannot_be_run_is_named(shop: Path) -> None:
    with_routes = ("run", "--routes", "routes.yaml")
    assert "is no module:name" in refused(shop, *with_routes, "shop")
    assert "cannot be imported: ModuleNotFoundError" in refused(shop, *with_routes, "nowhere:worker")
    assert "cannot be imported: AttributeError" in refused(shop, *with_routes, "shop:wrker")
    assert "shop:number is no Router or Worker, but of type int" in refused(shop, *with_routes, "shop:number")
    assert "one of them" in refused(shop, *with_routes, "shop:router")
    assert "two Routers" in refused(shop, "run", "shop:router", "shop:router")
    assert "there are no routes" in refused(shop, "run", "shop:worker")


def test_alone_on_a_bus_that_is_inside_nobody_could_be_reached(shop: Path) -> None:
    assert "out of reach of workers elsewhere" in refused(shop, "router", "--routes", "routes.yaml")
    assert "out of reach of a router elsewhere" in refused(shop, "worker", "shop:worker")
    http = {"MESSAGE_BUS_DRIVER": "http"}
    assert "shop:router is no Worker" in refused(shop, "worker", "shop:router", **http)
    assert "shop:worker is no Router" in refused(shop, "router", "shop:worker", **http)
    assert "there are no routes" in refused(shop, "router", **http)
