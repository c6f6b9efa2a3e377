"""A backfill whose process is killed: every object is there once, and counts once."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from slipstream.cli import main
from slipstream.jobs.ledger import JobSnapshot
from slipstream.jobs.server import listening
from tests.bus.sites import make_site
from tests.cli.aside import aside
from tests.jobs.hostile_server import HostileServer, body, hostile_server
from tests.jobs.lab import Lab, laboratory
from tests.program import Program

MISSING_EVERY = 20
ROWS_A_JOB = 100


def _table(server: HostileServer, path: Path, rows: int) -> None:
    """Every twentieth is not there, and one row is no resource."""
    urls = [
        server.url(f"/status/404/{number}") if number % MISSING_EVERY == 0 else server.url(f"/ok/{number + 1}")
        for number in range(rows)
    ]
    urls[7] = "ftp://127.0.0.1/7"
    pq.write_table(pa.table({"id": [f"r{number}" for number in range(rows)], "url": urls}), path, row_group_size=400)


@contextlib.asynccontextmanager
async def _place(folder: Path, bus: Mapping[str, Any]) -> AsyncIterator[tuple[Lab, HostileServer, str]]:
    async with (
        hostile_server() as server,
        laboratory(folder, worker=False, bus=bus, port=0) as lab,
        listening(lab.service) as url,
    ):
        yield lab, server, url


async def _jobs(lab: Lab) -> list[JobSnapshot]:
    return list(lab.service.ledger.jobs())


@pytest.mark.spark
@pytest.mark.usefixtures("on_spark")
@pytest.mark.parametrize("rows", [800, pytest.param(1_500, marks=pytest.mark.long)])
def test_a_backfill_that_is_killed_goes_on_and_everything_counts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    """The first one is a process; those that come after it find Spark running."""
    with (
        contextlib.closing(make_site("http")) as site,
        aside() as there,
        there.opened(_place(tmp_path, site.settings())) as (lab, server, url),
    ):
        path = tmp_path / "table.parquet"
        _table(server, path, rows)
        environment = {
            **site.environment(),
            "JOBS_STORAGE": str(tmp_path / "objects"),
            "JOBS_SPARK_LOG": str(tmp_path / "spark.log"),
            "JOBS_ALLOW_NETWORKS": "127.0.0.1/32",
            "JOBS_ACK_DEADLINE_MS": "2000",
            "JOBS_BACKFILL_AHEAD": "6",
        }
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        options = ("--type", "crawl", "--rows", str(ROWS_A_JOB), "--service", url, "--master", "local[2]")
        command = ["jobs", "backfill", str(path), *options]
        first = Program([sys.executable, "-m", "slipstream", *command])
        try:
            there.until(lab.until(lambda: len(server.requests) > rows / 3), lambda: first.process.poll() is None)
        finally:
            first.kill()
        assert len(server.requests) < rows, "all was done before it was killed"

        second = CliRunner().invoke(main, command)
        assert second.exit_code == 1, f"not every row could be stored: {second.output}{second.exception!r}"
        assert "row 7 is refused: url: 'ftp': only http and https" in second.stderr
        missing = len(range(0, rows, MISSING_EVERY))
        jobs = there.run(_jobs(lab))
        assert len(jobs) == rows / ROWS_A_JOB
        assert all(job.is_ended for job in jobs)
        assert sum(job.resources_total for job in jobs) == rows - 1
        assert sum(job.resources_failed for job in jobs) == missing
        assert sum(job.resources_completed for job in jobs) == rows - 1 - missing
        stored = lab.objects()
        assert len(stored) == rows - 1 - missing
        for key in stored:
            assert lab.object(key) == body(int(key.rpartition("/r")[2]) + 1), key
        asked = len(server.requests)
        third = CliRunner().invoke(main, command)
        assert third.exit_code == 1, f"{third.output}{third.exception!r}"
        assert len(server.requests) == asked, "there was nothing left to do"
        assert len(there.run(_jobs(lab))) == len(jobs)
