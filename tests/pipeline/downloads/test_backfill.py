"""A backfill from end to end, with executors that are threads here: a service, a file, and a worker."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from slipstream.jobs.client import JobsClient, ServiceUnreachable
from slipstream.jobs.errors import InvalidJobs
from slipstream.jobs.server import listening
from slipstream.pipeline.downloads import backfill as module
from slipstream.pipeline.downloads.backfill import Backfill, Source, Standing
from slipstream.pipeline.downloads.rows import Rows
from slipstream.pipeline.downloads.submission import submit_slices
from tests.bus.sites.site import free_port
from tests.client.loop import in_loop
from tests.jobs.hostile_server import HostileServer, hostile_server
from tests.jobs.lab import Lab, fast, laboratory

ROWS = 95


def _run_orders(orders: Sequence[bytes]) -> list[bytes]:
    return [submit_slices(order) for order in orders]


def _quiet(standing: Standing) -> None:
    pass


@contextlib.asynccontextmanager
async def place(folder: Path, **given: Any) -> AsyncIterator[tuple[Lab, HostileServer, str]]:
    async with (
        hostile_server() as server,
        laboratory(folder, port=0, **given) as lab,
        listening(lab.service) as url,
    ):
        yield lab, server, url


def _source(folder: Path, server: HostileServer, url: str) -> Source:
    """Of ten rows one is not there, and of all one is no resource."""
    urls = [server.url(f"/status/404/{n}") if n % 10 == 5 else server.url(f"/ok/{n}") for n in range(ROWS)]
    urls[3] = "nonsense"
    pq.write_table(pa.table({"id": [f"r{n}" for n in range(ROWS)], "url": urls}), folder / "table.parquet")
    return Source(Rows(folder / "table.parquet"), "photos", "shop", url, "")


@in_loop
async def test_every_row_is_stored_failed_or_refused(tmp_path: Path) -> None:
    async with place(tmp_path) as (lab, server, url), JobsClient(url) as client:
        settings = fast(tmp_path, backfill_rows=10, backfill_ahead=3)
        seen: list[int] = []
        found = Backfill(settings, _source(tmp_path, server, url), _run_orders, slots=2)
        standing = await found.run(client, lambda now: seen.append(now.ended))
        assert (standing.rows, standing.stored, standing.failed, standing.refused) == (ROWS, 85, 9, 1)
        assert (standing.ended, standing.is_whole, standing.jobs) == (ROWS, False, 10)
        assert [(each.row, each.why.split(":")[0]) for each in standing.refusals] == [(3, "url")]
        assert seen == sorted(seen)
        assert len(lab.objects()) == 85


@in_loop
async def test_jobs_are_submitted_as_others_end(tmp_path: Path) -> None:
    async with place(tmp_path) as (lab, server, url), JobsClient(url) as client:
        source = _source(tmp_path, server, url)
        urls = [server.url(f"/hold/{number}") for number in range(40)]
        pq.write_table(pa.table({"url": urls}), source.rows.path)
        source = Source(Rows(source.rows.path), "photos", "", url, "")
        settings = fast(tmp_path, backfill_rows=4, backfill_ahead=4)
        running = asyncio.create_task(Backfill(settings, source, _run_orders, slots=1).run(client, _quiet))
        await lab.until(lambda: server.running == 16)
        assert len(lab.service.ledger.jobs()) == 4
        server.release.set()
        assert (await running).is_whole
        assert len(lab.service.ledger.jobs()) == 10


@in_loop
async def test_begun_again_it_goes_on_and_counts_what_was_done(tmp_path: Path) -> None:
    async with place(tmp_path) as (lab, server, url), JobsClient(url) as client:
        source = _source(tmp_path, server, url)
        settings = fast(tmp_path, backfill_rows=10, backfill_ahead=2)
        begun = asyncio.Event()
        first = asyncio.create_task(
            Backfill(settings, source, _run_orders, 2).run(client, lambda now: begun.set() if now.stored else None)
        )
        await begun.wait()
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        standing = await Backfill(settings, source, _run_orders, 2).run(client, _quiet)
        assert (standing.stored, standing.failed, standing.refused) == (85, 9, 1)
        assert len(lab.service.ledger.jobs()) == 10
        assert sum(job.resources_completed for job in lab.service.ledger.jobs()) == 85


@in_loop
async def test_a_service_that_stays_away_ends_it_with_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AWAY_S_MAX", 0.0)
    async with hostile_server() as server:
        url = f"http://127.0.0.1:{free_port()}"
        source = _source(tmp_path, server, url)
        found = Backfill(fast(tmp_path, spark_shift_ms=10), source, _run_orders, 1)
        found._open["a job of before"] = None
        async with JobsClient(url) as client:
            with pytest.raises(ServiceUnreachable, match="no service answers"):
                await found.run(client, _quiet)


@in_loop
async def test_a_file_that_executors_do_not_see_is_said(tmp_path: Path) -> None:
    async with place(tmp_path) as (_, server, url), JobsClient(url) as client:
        source = _source(tmp_path, server, url)

        def elsewhere(orders: Sequence[bytes]) -> list[bytes]:
            source.rows.path.unlink()
            return _run_orders(orders)

        with pytest.raises(InvalidJobs, match="every machine of the cluster has to see the file there"):
            await Backfill(fast(tmp_path), source, elsewhere, 1).run(client, _quiet)
