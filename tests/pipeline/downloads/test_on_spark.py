"""A worker on Spark, with a real session, a real server and real downloads."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slipstream.pipeline.downloads.on_spark import slots_of, working_on_spark
from tests.bus.sites import make_site
from tests.client.loop import in_loop
from tests.jobs.hostile_server import HostileServer, body, hostile_server
from tests.jobs.lab import Lab, fast, laboratory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextlib.asynccontextmanager
async def at_work(folder: Path, spark: SparkSession, **given: Any) -> AsyncIterator[tuple[Lab, HostileServer]]:
    """A service, a worker on Spark, and a server of files."""
    with contextlib.closing(make_site("http")) as site:
        async with (
            hostile_server() as server,
            laboratory(folder, worker=False, bus=site.settings(), **given) as lab,
            working_on_spark(fast(folder, **given), spark, 2, **site.settings()),
        ):
            yield lab, server


def test_there_are_as_many_slots_as_spark_has_cores(spark: SparkSession, tmp_path: Path) -> None:
    assert slots_of(spark, fast(tmp_path)) == 2
    assert slots_of(spark, fast(tmp_path, spark_slots=7)) == 7


def test_each_resource_ends_where_it_should(spark: SparkSession, tmp_path: Path) -> None:
    @in_loop
    async def story() -> None:
        async with at_work(tmp_path, spark) as (lab, server):
            urls = {f"r{number}": server.url(f"/ok/{number + 1}") for number in range(300)}
            urls["missing"] = server.url("/status/404")
            urls["inside"] = "http://10.0.0.1/secret"
            urls["flaky"] = server.url("/flaky/2")
            job = await lab.ended(await lab.submit(urls))
            assert (job.resources_completed, job.resources_failed, job.state) == (301, 2, "partial")
            found = lab.resources(job.job_id)
            for number in range(300):
                resource = found[f"r{number}"]
                assert lab.object(resource.key) == body(number + 1)
                assert resource.sha256 == hashlib.sha256(body(number + 1)).hexdigest()
            assert (found["flaky"].state, found["flaky"].attempts) == ("completed", 3)
            assert found["inside"].error_code == "DOWNLOAD_FORBIDDEN_ADDRESS"
            assert {each.task.resource_id for each in await lab.letters()} == {"missing", "inside"}

    story()
