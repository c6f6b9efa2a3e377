"""A worker on Spark, with a real session, a real server and real downloads."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from slipstream.jobs.failure import Code
from slipstream.pipeline.downloads.on_spark import slots_of, working_on_spark
from tests.bus.sites import make_site
from tests.client.loop import in_loop
from tests.jobs.hostile_server import HostileServer, body, hostile_server
from tests.jobs.lab import Lab, fast, laboratory
from tests.jobs.test_end_to_end import ENDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextlib.asynccontextmanager
async def at_work(
    folder: Path, spark: SparkSession, driver: str = "http", **given: Any
) -> AsyncIterator[tuple[Lab, HostileServer]]:
    """A service, a worker on Spark, and a server of files."""
    with contextlib.closing(make_site(driver)) as site:
        async with (
            hostile_server() as server,
            laboratory(folder, worker=False, bus=site.settings(), **given) as lab,
            working_on_spark(fast(folder, **given), spark, 2, **site.settings()),
        ):
            yield lab, server


def test_there_are_as_many_slots_as_spark_has_cores(spark: SparkSession, tmp_path: Path) -> None:
    assert slots_of(spark, fast(tmp_path)) == 2
    assert slots_of(spark, fast(tmp_path, spark_slots=7)) == 7


@pytest.mark.parametrize("driver", ["http", "nats"])
@in_loop
async def test_each_resource_ends_where_it_does_with_an_ordinary_worker(
    spark: SparkSession, driver: str, tmp_path: Path
) -> None:
    async with at_work(tmp_path, spark, driver, max_attempts=3) as (lab, server):
        urls = {name: path if "://" in path[:8] else server.url(path) for name, (path, _, _) in ENDS.items()}
        urls |= {f"r{number}": server.url(f"/ok/{number + 1}/r") for number in range(300)}
        job = await lab.ended(await lab.submit(urls, tenant="shop"))
        resources = lab.resources(job.job_id)
        assert {name: (resources[name].error_code, resources[name].attempts) for name in ENDS} == {
            name: (code, attempts) for name, (_, code, attempts) in ENDS.items()
        }
        failed = {name: code for name, (_, code, _) in ENDS.items() if code}
        assert (job.state, job.resources_completed, job.resources_failed) == (
            "partial",
            len(urls) - len(failed),
            len(failed),
        )
        assert {each.task.resource_id: each.failure_code for each in await lab.letters()} == failed
        for number in range(300):
            resource = resources[f"r{number}"]
            assert lab.object(resource.key) == body(number + 1)
            assert resource.sha256 == hashlib.sha256(body(number + 1)).hexdigest()
        steps = [log.fields["step"] for log in await lab.logs(job.job_id) if log.resource_id == "500 twice"]
        assert steps == ["started", "retry", "retry", "downloaded", "stored"]


@in_loop
async def test_what_takes_too_long_is_tried_as_often_as_by_an_ordinary_worker(
    spark: SparkSession, tmp_path: Path
) -> None:
    async with at_work(tmp_path, spark, "http", max_attempts=3, total_timeout_ms=300) as (lab, server):
        job = await lab.ended(await lab.submit({path: server.url(path) for path in ("/drip", "/hang")}))
        resources = lab.resources(job.job_id).values()
        assert {(each.error_code, each.attempts) for each in resources} == {(Code.DOWNLOAD_TIMEOUT, 3)}
