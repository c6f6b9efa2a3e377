"""Executors and drivers that are killed: every object is there once, with its checksum, and counts; and nobody asks an
address that is forbidden."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from slipstream.jobs.failure import Code
from slipstream.jobs.server import listening
from tests.bus.sites import make_site
from tests.jobs.hostile_server import HostileServer, body, hostile_server
from tests.jobs.lab import laboratory
from tests.pipeline.cluster import Cluster
from tests.pipeline.downloads.process import READY, jobs_process, on

RESOURCES = 1_000
JOBS = 2
MISSING_EVERY = 20
INSIDE_EVERY = 50
STORY_S = 240.0
SECRET = "s3cret-of-the-store"


def _url(server: HostileServer, job: int, number: int) -> str:
    if number % INSIDE_EVERY == 1:
        inside = server.url(f"/ok/7/{job}-{number}", host="127.0.0.2")
        return inside if number % 2 else server.url(f"/redirect/{job}-{number}?to={inside}")
    if number % MISSING_EVERY == 0:
        return server.url(f"/status/404/{job}-{number}")
    return server.url(f"/ok/{number + 1}/{job}")


async def _story(cluster: Cluster, folder: Path) -> None:
    with contextlib.closing(make_site("http")) as site:
        environment = {
            **site.environment(),
            "JOBS_STORAGE": str(folder / "objects"),
            "JOBS_SPARK_LOG": str(folder / "spark.log"),
            "JOBS_ALLOW_NETWORKS": "127.0.0.1/32",
            "JOBS_ACK_DEADLINE_MS": "2000",
            "JOBS_SPARK_BUNDLE": "100",
            "JOBS_CONCURRENCY": "8",
            "AWS_SECRET_ACCESS_KEY": SECRET,
        }
        async with (
            hostile_server() as server,
            laboratory(folder, worker=False, bus=site.settings()) as lab,
            jobs_process("worker", "--engine", "spark", *on(cluster), environment=environment) as worker,
        ):
            urls = [{f"r{number}": _url(server, job, number) for number in range(RESOURCES)} for job in range(JOBS)]
            jobs = [await lab.submit(each) for each in urls]
            await worker.said(READY)
            await lab.until(lambda: len(server.requests) > RESOURCES * JOBS / 4)
            cluster.kill_worker()
            asked = len(server.requests)
            assert asked < RESOURCES * JOBS, "all was done before anybody was killed"
            ends = [await lab.ended(job_id) for job_id in jobs]
            inside = len(range(1, RESOURCES, INSIDE_EVERY))
            missing = len(range(0, RESOURCES, MISSING_EVERY))
            for job in ends:
                assert (job.resources_total, job.resources_completed, job.resources_failed) == (
                    RESOURCES,
                    RESOURCES - inside - missing,
                    inside + missing,
                )
                codes = [each.error_code for each in lab.resources(job.job_id).values()]
                assert codes.count(Code.DOWNLOAD_FORBIDDEN_ADDRESS) == inside
                assert codes.count(Code.DOWNLOAD_HTTP_STATUS) == missing
            letters = {(each.task.job_id, each.task.resource_id) for each in await lab.letters()}
            assert len(letters) == JOBS * (inside + missing)
            assert not [request for request in server.requests if "127.0.0.2" in request.headers["host"]]
            stored = lab.objects()
            assert len(stored) == JOBS * (RESOURCES - inside - missing)
            for key in stored:
                size = int(key.rpartition("/r")[2]) + 1
                assert hashlib.sha256(lab.object(key)).digest() == hashlib.sha256(body(size)).digest(), key
            assert await worker.stop() == 0
            assert SECRET not in cluster.logs() + worker.all_said + (folder / "spark.log").read_text()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_every_object_is_there_once_though_a_worker_of_spark_is_killed(cluster: Cluster, tmp_path: Path) -> None:
    asyncio.run(asyncio.wait_for(_story(cluster, tmp_path), STORY_S))


ROWS = 1_500
ROWS_A_JOB = 100


def _table(server: HostileServer, path: Path) -> None:
    """Every twentieth is not there, and one row is no resource."""
    urls = [
        server.url(f"/status/404/{number}") if number % MISSING_EVERY == 0 else server.url(f"/ok/{number + 1}")
        for number in range(ROWS)
    ]
    urls[7] = "ftp://127.0.0.1/7"
    pq.write_table(pa.table({"id": [f"r{number}" for number in range(ROWS)], "url": urls}), path, row_group_size=400)


async def _backfill_story(folder: Path) -> None:
    with contextlib.closing(make_site("http")) as site:
        async with (
            hostile_server() as server,
            laboratory(folder, worker=False, bus=site.settings(), port=0) as lab,
            listening(lab.service) as url,
        ):
            _table(server, folder / "table.parquet")
            environment = {
                **site.environment(),
                "JOBS_STORAGE": str(folder / "objects"),
                "JOBS_SPARK_LOG": str(folder / "spark.log"),
                "JOBS_ALLOW_NETWORKS": "127.0.0.1/32",
                "JOBS_ACK_DEADLINE_MS": "2000",
                "JOBS_BACKFILL_AHEAD": "6",
            }
            options = ("--type", "crawl", "--rows", str(ROWS_A_JOB), "--service", url, "--master", "local[2]")
            command = ("backfill", str(folder / "table.parquet"), *options)
            async with jobs_process(*command, environment=environment) as first:
                await lab.until(lambda: len(server.requests) > ROWS / 3)
                await first.kill()
                assert len(server.requests) < ROWS, "all was done before anybody was killed"
            async with jobs_process(*command, environment=environment) as second:
                assert await second.ended() == 1, "not every row could be stored"
                assert "row 7 is refused: url: 'ftp': only http and https" in second.all_said
            missing = len(range(0, ROWS, MISSING_EVERY))
            jobs = lab.service.ledger.jobs()
            assert len(jobs) == ROWS / ROWS_A_JOB
            assert all(job.is_ended for job in jobs)
            assert sum(job.resources_total for job in jobs) == ROWS - 1
            assert sum(job.resources_failed for job in jobs) == missing
            assert sum(job.resources_completed for job in jobs) == ROWS - 1 - missing
            stored = lab.objects()
            assert len(stored) == ROWS - 1 - missing
            for key in stored:
                assert lab.object(key) == body(int(key.rpartition("/r")[2]) + 1), key
            asked = len(server.requests)
            async with jobs_process(*command, environment=environment) as third:
                assert await third.ended() == 1
            assert len(server.requests) == asked, "there was nothing left to do"
            assert len(lab.service.ledger.jobs()) == len(jobs)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_backfill_that_is_killed_goes_on_and_everything_counts_once(tmp_path: Path) -> None:
    asyncio.run(asyncio.wait_for(_backfill_story(tmp_path), STORY_S))
