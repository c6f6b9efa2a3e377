"""Handlers: found by name, plain or async, with what their type says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from slipstream.jobs import handler as handlers
from slipstream.jobs.config import JobConfig, JobType
from slipstream.jobs.errors import InvalidJobs
from slipstream.jobs.handler import Handlers, Job, JobHandler
from slipstream.jobs.manifest import InvalidManifest, Manifest
from slipstream.jobs.messages import DownloadTask, JobState, JobStatus
from slipstream.jobs.refusal import RefusalCode, Refused
from tests.client.loop import in_loop
from tests.jobs.hostile_server import hostile_server
from tests.jobs.lab import laboratory

HEARD: list[JobStatus] = []


class Plain(JobHandler):
    def prepare_manifest(self, job: Job, manifest: Manifest) -> Manifest:
        if len(manifest.resources) > 2:
            raise InvalidManifest("an album has at most 2 photos")
        return manifest

    def finalize_job(self, status: JobStatus) -> None:
        HEARD.append(status)


class Patient:
    """Async, and of no base."""

    async def prepare_manifest(self, job: Job, manifest: Manifest) -> Manifest:
        await asyncio.sleep(0)
        return Manifest(manifest_version="v1", resources=manifest.resources[:1])

    async def build_tasks(self, job: Job, manifest: Manifest) -> Iterable[DownloadTask]:
        await asyncio.sleep(0)
        return (DownloadTask(resource_id=each.id, url=each.url) for each in manifest.resources)

    async def finalize_job(self, status: JobStatus) -> None:
        HEARD.append(status)
        raise RuntimeError("not today")


class Twice(JobHandler):
    def build_tasks(self, job: Job, manifest: Manifest) -> list[DownloadTask]:
        return [self.build_task(job, manifest, each) for each in manifest.resources * 2]


class Nothing(JobHandler):
    def prepare_manifest(self, job: Job, manifest: Manifest) -> Manifest:
        return None  # type: ignore[return-value]


class Unmakeable(JobHandler):
    def __init__(self) -> None:
        raise OSError("no room")


HERE = "tests.jobs.test_handler"


def _config(folder: Path, **types: str) -> str:
    path = folder / "jobs.toml"
    path.write_text("\n".join(f'[types.{name}]\nhandler = "{HERE}:{kind}"' for name, kind in types.items()))
    return str(path)


@in_loop
async def test_handlers_plain_and_async_have_a_say_from_manifest_to_end(tmp_path: Path) -> None:
    HEARD.clear()
    config = _config(tmp_path, plain="Plain", patient="Patient")
    async with hostile_server() as server, laboratory(tmp_path, config=config) as lab:
        three = {name: server.url(f"/ok/1?{name}") for name in "abc"}
        with pytest.raises(Refused, match="at most 2 photos") as refused:
            await lab.submit(three, "plain")
        assert refused.value.code == RefusalCode.INVALID_PAYLOAD
        patient = await lab.submit(three, "patient")
        job = await lab.ended(patient)
        assert (job.state, job.resources_total) == ("completed", 1)
        plain = await lab.submit({"a": server.url("/status/404")}, "plain")
        await lab.ended(plain)
        await lab.until(lambda: len(HEARD) == 2 and not lab.service.ledger.unfinalized())
        assert {status.job_id: status.state for status in HEARD} == {
            patient: JobState.JOB_STATE_COMPLETED,
            plain: JobState.JOB_STATE_FAILED,
        }


@pytest.mark.parametrize("kind", ["Twice", "Nothing"])
@in_loop
async def test_a_handler_that_makes_nonsense_is_said_to(kind: str, tmp_path: Path) -> None:
    async with laboratory(tmp_path, worker=False, config=_config(tmp_path, odd=kind)) as lab:
        with pytest.raises(Refused, match="the handler of odd failed") as refused:
            await lab.submit({"a": "http://example.invalid/"}, "odd")
        assert refused.value.code == RefusalCode.HANDLER_FAILED
        assert lab.service.ledger.jobs() == []


@in_loop
async def test_the_default_handler_sends_what_the_type_says_and_the_resource_wins(tmp_path: Path) -> None:
    path = tmp_path / "jobs.toml"
    path.write_text('[types.crawl]\nheaders = { "X-Shop" = "eu", "User-Agent" = "ours" }\nkey_prefix = "album"\n')
    async with hostile_server() as server, laboratory(tmp_path, config=str(path)) as lab:
        resource = {"id": "a", "url": server.url("/headers"), "headers": {"x-shop": "us"}, "tags": {"k": "v"}}
        manifest = {"manifest_version": "v1", "resources": [resource], "attributes": {"priority": 1}}

        accepted = await lab.service.ingress.submit("crawl", json.dumps(manifest).encode())
        await lab.ended(accepted.job_id)
        sent = server.requests[0].headers
        assert (sent["x-shop"], sent["user-agent"]) == ("us", "ours")
        assert lab.objects() == ["resources/album/a"]
        task = (await lab.tasks())[0]
        assert [header.name for header in task.headers] == ["x-shop", "user-agent"]
        assert (dict(task.attributes.tags), task.attributes.extra) == ({"k": "v"}, b'{"priority":1}')
        assert len(task.trace_id) == 32


REFUSED = {
    "nowhere:Handler": "nowhere:Handler cannot be imported",
    f"{HERE}:Missing": "Missing cannot be imported",
    "no reference": "is no module:name",
    f"{HERE}:Unmakeable": "cannot be made: no room",
    f"{HERE}:HERE": "has no prepare_manifest and no build_tasks and no finalize_job",
}


@pytest.mark.parametrize("reference", REFUSED)
def test_a_handler_that_cannot_be_found_is_refused_with_its_type(reference: str) -> None:
    with pytest.raises(InvalidJobs, match=f"types.photos.handler: .*{REFUSED[reference]}"):
        Handlers(JobConfig(types={"photos": JobType(handler=reference)}))


def test_packages_offer_handlers_by_entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    offered = [
        EntryPoint("photos", f"{HERE}:Plain", handlers.ENTRY_POINTS),
        EntryPoint("broken", "nowhere:Handler", handlers.ENTRY_POINTS),
    ]
    monkeypatch.setattr(handlers, "entry_points", lambda group: offered)
    found = Handlers(JobConfig(types={"albums": JobType(handler="photos"), "photos": JobType()}))
    assert isinstance(found.of("photos"), Plain)
    assert isinstance(found.of("albums"), Plain)
    assert type(found.of("anything")) is JobHandler
    with pytest.raises(InvalidJobs, match="broken cannot be imported"):
        Handlers(JobConfig(types={"broken": JobType()}))
