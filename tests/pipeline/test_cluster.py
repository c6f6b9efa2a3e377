"""Commands on a cluster, whose executors do not find our package: a worker of it is killed, and no secret is told."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from slipstream.jobs.failure import Code
from tests.bus.sites import make_site
from tests.cli.letters import assert_replays
from tests.client.loop import in_loop_for
from tests.jobs.hostile_server import HostileServer, body, hostile_server
from tests.jobs.lab import laboratory
from tests.pipeline.cluster import Cluster, conf_options
from tests.pipeline.downloads.process import READY, jobs_process
from tests.pipeline.steps.site import Site
from tests.pipeline.steps.worker_process import SparkWorker
from tests.server_process import ServerProcess

pytestmark = pytest.mark.spark

EMBED = "tests.pipeline.steps.functions:embed"
JOBS = 2
MISSING_EVERY = 20
INSIDE_EVERY = 50
SECRET = "s3cret-of-the-store"


@pytest.fixture(scope="module")
def one_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as found:
        yield found


@pytest.fixture
def cluster(one_cluster: Cluster) -> Cluster:
    """The same for all tests, with all its workers; drivers are processes, since Spark allows one in a process."""
    one_cluster.restore()
    return one_cluster


def test_steps_on_a_cluster_that_loses_a_worker_and_with_a_secret_that_is_not_told(
    server: ServerProcess, cluster: Cluster, tmp_path: Path
) -> None:
    site = Site(server.base, "c.")
    events = tmp_path / "events"
    events.mkdir()
    logged = conf_options({"spark.eventLog.enabled": "true", "spark.eventLog.dir": f"file://{events}"})
    with site.client:
        site.put_numbers(1_000)
        url = server.base.replace("http://", "http://user:s3cret@")
        arguments = (*cluster.options, *logged, "--once", EMBED)
        worker = SparkWorker(url, tmp_path, "c.", *arguments, PIPELINE_STEP_ROWS="50")
        try:
            worker.wait_for("embed: 50 OK")
            cluster.kill_worker()
            assert site.lag > 0, "it was done before a worker was killed"
            assert worker.wait() == 0, worker.said
        finally:
            worker.kill()
        assert site.squares() == {n: n * n for n in range(1_000)}
        assert site.lag == 0
    written = [path.read_text(errors="replace") for path in events.rglob("*") if path.is_file()]
    assert written, "Spark wrote its event log"
    said = (tmp_path / "spark-steps.log").read_text()
    for text in (*written, said, worker.said, cluster.logs()):
        assert "s3cret" not in text


def url_of(server: HostileServer, job: int, number: int) -> str:
    if number % INSIDE_EVERY == 1:
        inside = server.url(f"/ok/7/{job}-{number}", host="127.0.0.2")
        return inside if number % 2 else server.url(f"/redirect/{job}-{number}?to={inside}")
    if number % MISSING_EVERY == 0:
        return server.url(f"/status/404/{job}-{number}")
    return server.url(f"/ok/{number + 1}/{job}")


@pytest.mark.parametrize("resources", [400, pytest.param(1_000, marks=pytest.mark.long)])
@in_loop_for(240)
async def test_every_object_is_there_once_though_a_worker_of_spark_is_killed(
    cluster: Cluster, tmp_path: Path, resources: int
) -> None:
    """Each counts, has its checksum, and a forbidden address is not asked."""
    with contextlib.closing(make_site("http")) as site:
        environment = {
            **site.environment(),
            "JOBS_STORAGE": str(tmp_path / "objects"),
            "JOBS_SPARK_LOG": str(tmp_path / "spark.log"),
            "JOBS_ALLOW_NETWORKS": "127.0.0.1/32",
            "JOBS_ACK_DEADLINE_MS": "2000",
            "JOBS_SPARK_BUNDLE": "50",
            "JOBS_CONCURRENCY": "8",
            "AWS_SECRET_ACCESS_KEY": SECRET,
        }
        async with (
            hostile_server() as server,
            laboratory(tmp_path, worker=False, bus=site.settings()) as lab,
            jobs_process("worker", "--engine", "spark", *cluster.options, environment=environment) as worker,
        ):
            urls = [{f"r{number}": url_of(server, job, number) for number in range(resources)} for job in range(JOBS)]
            jobs = [await lab.submit(each) for each in urls]
            await worker.said(READY)
            await lab.until(lambda: len(server.requests) > resources * JOBS / 4)
            cluster.kill_worker()
            asked = len(server.requests)
            assert asked < resources * JOBS, "all was done before a worker was killed"
            ends = [await lab.ended(job_id) for job_id in jobs]
            inside = len(range(1, resources, INSIDE_EVERY))
            missing = len(range(0, resources, MISSING_EVERY))
            for job in ends:
                assert (job.resources_total, job.resources_completed, job.resources_failed) == (
                    resources,
                    resources - inside - missing,
                    inside + missing,
                )
                codes = [each.error_code for each in lab.resources(job.job_id).values()]
                assert codes.count(Code.DOWNLOAD_FORBIDDEN_ADDRESS) == inside
                assert codes.count(Code.DOWNLOAD_HTTP_STATUS) == missing
            letters = {(each.task.job_id, each.task.resource_id) for each in await lab.letters()}
            assert len(letters) == JOBS * (inside + missing)
            assert not [request for request in server.requests if "127.0.0.2" in request.headers["host"]]
            objects = lab.objects()
            assert len(objects) == JOBS * (resources - inside - missing)
            for key in objects:
                size = int(key.rpartition("/r")[2]) + 1
                assert hashlib.sha256(lab.object(key)).digest() == hashlib.sha256(body(size)).digest(), key
            assert await worker.stop() == 0
            assert SECRET not in cluster.logs() + worker.all_said + (tmp_path / "spark.log").read_text()


def test_a_replay_is_composed_on_a_cluster(server: ServerProcess, cluster: Cluster, tmp_path: Path) -> None:
    assert_replays(server, tmp_path / "tables", *cluster.options)
