"""Slices of a file as jobs, at a real service."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from slipstream.jobs.server import listening
from slipstream.pipeline.downloads import rows as rows_module
from slipstream.pipeline.downloads.rows import Rows
from slipstream.pipeline.downloads.slices import Slice, slices_of
from slipstream.pipeline.downloads.submission import SubmissionAnswer, SubmissionOrder, Submitted, submit_slices
from tests.bus.sites.site import free_port
from tests.client.loop import in_loop
from tests.jobs.lab import Lab, laboratory


@contextlib.asynccontextmanager
async def service(folder: Path, **given: Any) -> AsyncIterator[tuple[Lab, str]]:
    async with laboratory(folder, worker=False, port=0, **given) as lab, listening(lab.service) as url:
        yield lab, url


def _table(folder: Path, count: int = 25, **columns: Any) -> Path:
    path = folder / "table.parquet"
    urls = [f"http://192.0.2.7/{number}" for number in range(count)]
    pq.write_table(pa.table({"url": urls, **columns}), path)
    return path


async def _submit(path: Path, url: str, slices: list[Slice] | None = None, patience_ms: int = 1_000) -> list[Submitted]:
    """In a thread, as there it is a process of its own."""
    rows = Rows(path)
    slices = slices or list(slices_of(rows, 10, "photos", "shop"))
    order = SubmissionOrder(str(path), rows.digest(), slices, url, "", patience_ms)
    data = await asyncio.to_thread(submit_slices, msgspec.msgpack.encode(order))
    answer = msgspec.msgpack.decode(data, type=SubmissionAnswer)
    assert not answer.trouble, answer.trouble
    return answer.submitted


@in_loop
async def test_each_slice_is_a_job_and_the_same_one_when_it_is_submitted_again(tmp_path: Path) -> None:
    async with service(tmp_path) as (lab, url):
        path = _table(tmp_path)
        first = await _submit(path, url)
        assert [each.resources for each in first] == [10, 10, 5]
        assert await _submit(path, url) == first
        assert len(lab.service.ledger.jobs()) == 3
        tasks = {(task.job_id, task.resource_id): task for task in await lab.tasks()}
        assert len(tasks) == 25
        assert tasks[first[2].job_id, "row-24"].url == "http://192.0.2.7/24"
        assert {(task.job_type, task.tenant) for task in tasks.values()} == {("photos", "shop")}


@in_loop
async def test_slices_are_found_wherever_batches_of_the_file_end(tmp_path: Path) -> None:
    async with service(tmp_path) as (_, url):
        path = _table(tmp_path, 100)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(rows_module, "BATCH_ROWS", 7)
            some = [Slice(5, 20, "photos", ""), Slice(25, 1, "photos", ""), Slice(60, 40, "photos", "")]
            assert [each.resources for each in await _submit(path, url, some)] == [20, 1, 40]


@in_loop
async def test_all_that_a_resource_may_have_is_in_its_task(tmp_path: Path) -> None:
    async with service(tmp_path) as (lab, url):
        headers = pa.array([[("accept", "image/png")], None], pa.map_(pa.string(), pa.string()))
        checksum = "md5:" + "0" * 32
        columns = {
            "id": ["a", "b"],
            "headers": headers,
            "tags": [{"x": "1"}, {"x": None}],
            "checksum": [checksum, None],
        }
        await _submit(_table(tmp_path, 2, mime=["image/png", ""], **columns), url)
        first, second = sorted(await lab.tasks(), key=lambda task: task.resource_id)
        assert [(each.name, each.value) for each in first.headers] == [("accept", "image/png")]
        assert dict(first.attributes.tags) == {"x": "1"}
        assert (first.attributes.checksum_hint, first.attributes.mime_hint) == (checksum, "image/png")
        assert not second.headers
        assert not second.attributes.tags


@in_loop
async def test_maps_in_text_are_json(tmp_path: Path) -> None:
    async with service(tmp_path) as (lab, url):
        path = tmp_path / "table.csv"
        path.write_text('url,tags\nhttp://192.0.2.7/a,"{""x"": ""1""}"\nhttp://192.0.2.7/b,\nhttp://192.0.2.7/c,{\n')
        [submitted] = await _submit(path, url)
        assert [refusal.row for refusal in submitted.refusals] == [2]
        assert sorted(dict(task.attributes.tags).get("x", "") for task in await lab.tasks()) == ["", "1"]


@in_loop
async def test_rows_that_can_be_no_resource_are_refused_alone(tmp_path: Path) -> None:
    async with service(tmp_path) as (lab, url):
        path = _table(tmp_path, 10, id=["a", "b", "c", "a", "e", "f", "g", "h", "i", "j"])
        table = pq.read_table(path)
        urls = [*table["url"].to_pylist()[:8], "ftp://192.0.2.7/8", None]
        pq.write_table(table.set_column(0, "url", pa.array(urls)), path)
        [submitted] = await _submit(path, url)
        assert (submitted.resources, submitted.refused) == (7, 3)
        assert [(each.row, each.why.split(":")[0]) for each in submitted.refusals] == [
            (3, "id"),
            (8, "url"),
            (9, "url"),
        ]
        assert len(await lab.tasks()) == 7


@in_loop
async def test_a_job_that_the_service_refuses_is_told_with_its_reason(tmp_path: Path) -> None:
    async with service(tmp_path, max_resources=5) as (_, url):
        submitted = await _submit(_table(tmp_path), url)
        assert [each.refused for each in submitted] == [10, 10, 0], "the last has five rows"
        assert "send 1 to 5" in submitted[0].refusals[0].why


@in_loop
async def test_what_a_service_does_not_take_now_is_left_for_later(tmp_path: Path) -> None:
    path = _table(tmp_path)
    nobody = f"http://127.0.0.1:{free_port()}"
    assert ["no service answers" in each.left for each in await _submit(path, nobody, patience_ms=10)] == [True] * 3
    async with service(tmp_path, rate_per_s=0.001, rate_burst=1) as (_, url):
        submitted = await _submit(path, url, patience_ms=10)
        assert [bool(each.left) for each in submitted] == [False, True, True]
        assert "more than 0.001 jobs a second" in submitted[1].left


def test_a_file_that_is_not_there_is_an_answer(tmp_path: Path) -> None:
    order = SubmissionOrder(str(tmp_path / "gone.parquet"), "", [], "http://127.0.0.1:1", "", 10)
    answer = msgspec.msgpack.decode(submit_slices(msgspec.msgpack.encode(order)), type=SubmissionAnswer)
    assert "gone.parquet cannot be read" in answer.trouble
