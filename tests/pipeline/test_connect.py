"""Commands whose Spark is behind Spark Connect: their driver is not ours, and does not find our package."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bus.sites import make_site
from tests.cli.letters import assert_replays
from tests.client.loop import in_loop_for
from tests.jobs.hostile_server import hostile_server
from tests.jobs.lab import laboratory
from tests.pipeline.cluster import connect_server
from tests.pipeline.downloads.process import jobs_process
from tests.pipeline.steps.site import Site
from tests.pipeline.steps.worker_process import SparkWorker
from tests.server_process import ServerProcess

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def connect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of one server of Spark Connect for all tests."""
    with connect_server(tmp_path_factory.mktemp("connect")) as url:
        yield url


@pytest.mark.parametrize("step", ["embed", "frame"])
def test_a_step_answers_behind_spark_connect(server: ServerProcess, connect: str, tmp_path: Path, step: str) -> None:
    site = Site(server.base, "r.")
    with site.client:
        site.put_numbers(200)
        reference = f"tests.pipeline.steps.functions:{step}"
        worker = SparkWorker(server.base, tmp_path, "r.", "--remote", connect, "--once", reference)
        try:
            assert worker.wait() == 0, worker.said
        finally:
            worker.kill()
        assert site.squares() == {n: n * n for n in range(200)}


@in_loop_for(150)
async def test_a_worker_downloads_behind_spark_connect(connect: str, tmp_path: Path) -> None:
    with contextlib.closing(make_site("http")) as site:
        environment = {
            **site.environment(),
            "JOBS_STORAGE": str(tmp_path / "objects"),
            "JOBS_ALLOW_NETWORKS": "127.0.0.1/32",
        }
        async with (
            hostile_server() as server,
            laboratory(tmp_path, worker=False, bus=site.settings()) as lab,
            jobs_process("worker", "--engine", "spark", "--remote", connect, environment=environment) as worker,
        ):
            await worker.said("on 2 slots of Spark")
            urls = {f"r{number}": server.url(f"/ok/{number}") for number in range(200)}
            assert (await lab.ended(await lab.submit(urls))).resources_completed == 200
            assert await worker.stop() == 0


def test_a_replay_is_composed_behind_spark_connect(server: ServerProcess, connect: str, tmp_path: Path) -> None:
    assert_replays(server, tmp_path / "tables", "--remote", connect)
