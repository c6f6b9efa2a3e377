"""What a cleanup removes, and above all what it does not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slipstream.jobs.clock import now_ms
from slipstream.jobs.keys import is_resource_key
from slipstream.jobs.ledger import Rank, Told
from slipstream.jobs.service import Service
from tests.client.loop import in_loop
from tests.jobs.hostile_server import hostile_server
from tests.jobs.lab import Lab, laboratory

BUCKETS = """
[types.shared]
key_prefix = "album"

[types.archived]
storage = "archive"

[storages.archive]
url = "{}"
"""


def configured(folder: Path) -> str:
    path = folder / "jobs.toml"
    path.write_text(BUCKETS.format(folder / "archive"))
    return str(path)


async def age(service: Service, job_id: str) -> None:
    """It was long ago that anything happened to it."""
    job = service.ledger.job(job_id)
    assert job is not None
    await service.ledger._write(
        lambda cursor: cursor.execute("UPDATE jobs SET updated_ms = 1 WHERE job_id = ?", (job_id,))
    )


async def stored(lab: Lab, url: str, job_type: str) -> str:
    job_id = await lab.submit({"a": url}, job_type)
    assert (await lab.ended(job_id)).state == "completed"
    return job_id


@in_loop
async def test_what_another_job_has_stored_in_the_same_place_stays_until_that_is_removed(tmp_path: Path) -> None:
    async with hostile_server() as server, laboratory(tmp_path, config=configured(tmp_path)) as lab:
        old, new = [await stored(lab, server.url("/ok/10"), "shared") for _ in range(2)]
        await age(lab.service, old)
        await lab.service.cleanup(1_000_000, objects=True)
        assert lab.service.ledger.job(old) is None
        assert lab.objects() == ["resources/album/a"]
        await age(lab.service, new)
        await lab.service.cleanup(1_000_000, objects=True)
        assert lab.objects() == []


@in_loop
async def test_objects_are_removed_from_where_they_are(tmp_path: Path) -> None:
    async with hostile_server() as server, laboratory(tmp_path, config=configured(tmp_path)) as lab:
        job_id = await stored(lab, server.url("/ok/10"), "archived")
        [resource] = lab.service.ledger.resources(job_id)
        assert (tmp_path / "archive" / resource.key).exists()
        await age(lab.service, job_id)
        assert (await lab.service.cleanup(1_000_000, objects=True)).objects == 2
        assert not (tmp_path / "archive" / resource.key).exists()


@in_loop
async def test_what_strangers_say_is_stored_somewhere_is_not_removed_there(tmp_path: Path) -> None:
    async with hostile_server() as server, laboratory(tmp_path) as lab:
        job_id = await stored(lab, server.url("/ok/10"), "photos")
        job, [resource] = lab.service.ledger.job(job_id), lab.service.ledger.resources(job_id)
        assert job is not None
        for number, key in enumerate((job.manifest_key, resource.key, "resources/../jobs.db", "resources//x")):
            fields = {"key": key, "job_type": "liar", "manifest_key": resource.key}
            told = Told(f"liar-{number}", "x", Rank.COMPLETED, 0, 1, fields, "")
            await lab.service.ledger.fold_logs("elsewhere", 0, [told])
            await age(lab.service, f"liar-{number}")
        cleaned = await lab.service.cleanup(1_000_000, objects=True)
        assert (cleaned.jobs, cleaned.objects) == (4, 0)
        assert lab.objects() == [resource.key]
        assert json.loads(lab.object(job.manifest_key))


@in_loop
async def test_a_job_that_has_not_ended_stays_as_long_as_its_tasks(tmp_path: Path) -> None:
    async with laboratory(tmp_path, worker=False) as lab:
        job_id = await lab.submit({"a": "http://127.0.0.1:1/"})
        assert (await lab.service.cleanup(-1)).jobs == 0, "even where everything is to go"
        assert await lab.service.ledger.forget(-1, 1_000_000) == 0
        await age(lab.service, job_id)
        assert now_ms() > lab.service._streams.tasks.retention_ms
        assert (await lab.service.cleanup(-1)).jobs == 1


@pytest.mark.parametrize(
    "key", ["", "resources", "resources/", "resources/../x", "resources//x", "manifests/a/b", "/x"]
)
def test_a_key_that_is_no_resource(key: str) -> None:
    assert not is_resource_key(key)
    assert is_resource_key("resources/photos/j-1/a")
