"""The service of jobs with a worker in it, fast and allowed to reach this machine, and ways to wait for what comes."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from slipstream.jobs.ledger import JobSnapshot, ResourceSnapshot
from slipstream.jobs.ledger.telling import PROGRESS
from slipstream.jobs.messages import DeadLetterTask, DownloadTask, JobLog, JobStatus, decode
from slipstream.jobs.service import Service, serving
from slipstream.jobs.settings import JobSettings, load_settings

FAST: dict[str, Any] = {
    "allow_networks": "127.0.0.0/8",
    "retry_base_ms": 10,
    "retry_longest_ms": 100,
    "status_interval_ms": 20,
    "storage_sync": False,
    "host_concurrency": 32,
}


def fast(folder: Path, **given: Any) -> JobSettings:
    places = {"storage": str(folder / "objects"), "ledger": str(folder / "jobs.db"), "spool": str(folder / "spool")}
    return load_settings({**FAST, **places, **given}, {})


def manifest(urls: Mapping[str, str], **fields: Any) -> bytes:
    """Of resources, by id."""
    resources = [{"id": name, "url": url} for name, url in urls.items()]
    return json.dumps({"manifest_version": "v1", "resources": resources, **fields}).encode()


class Lab:
    def __init__(self, service: Service, folder: Path) -> None:
        self.service = service
        self.folder = folder

    async def submit(self, urls: Mapping[str, str], job_type: str = "crawl", **fields: Any) -> str:
        return (await self.service.ingress.submit(job_type, manifest(urls), **fields)).job_id

    async def ended(self, job_id: str) -> JobSnapshot:
        await self.until(lambda: (job := self.service.ledger.job(job_id)) is not None and job.is_ended)
        job = self.service.ledger.job(job_id)
        assert job is not None
        return job

    async def until(self, question: Callable[[], bool]) -> None:
        """Asks again and again: the ledger tells nobody by itself."""
        while not question():
            await asyncio.sleep(0.01)

    def resources(self, job_id: str) -> dict[str, ResourceSnapshot]:
        return {each.resource_id: each for each in self.service.ledger.resources(job_id)}

    def object(self, key: str) -> bytes:
        return (self.folder / "objects" / key).read_bytes()

    def objects(self) -> list[str]:
        """What the store would list: `NAME#1` is none of them, but what one who was killed had written of NAME."""
        root = self.folder / "objects"
        files = [path for path in (root / "resources").rglob("*") if path.is_file()]
        return sorted(str(path.relative_to(root)) for path in files if "#" not in path.name)  # no key has one

    async def statuses(self, job_id: str) -> list[JobStatus]:
        found = [decode(JobStatus, data) async for data in self._read("jobs.status")]
        return [status for status in found if status.job_id == job_id]

    async def told(self, job_id: str, state: int) -> list[JobStatus]:
        """When the last of them says so: the ledger knows before everybody is told."""
        while not (statuses := await self.statuses(job_id)) or statuses[-1].state != state:
            await asyncio.sleep(0.01)
        return statuses

    async def logs(self, job_id: str) -> list[JobLog]:
        """Return the logs of a job but the reports of progress, which come as time passes."""
        found = [decode(JobLog, data) async for data in self._read("jobs.logs")]
        return [log for log in found if log.job_id == job_id and log.fields.get("step") != PROGRESS]

    async def tasks(self) -> list[DownloadTask]:
        return [decode(DownloadTask, data) async for data in self._read("jobs.tasks")]

    async def letters(self) -> list[DeadLetterTask]:
        return [decode(DeadLetterTask, data) async for data in self._read("jobs.dlq")]

    async def buried(self, count: int) -> list[DeadLetterTask]:
        """When there are so many."""
        while len(letters := await self.letters()) < count:
            await asyncio.sleep(0.01)
        return letters

    async def _read(self, stream: str) -> AsyncIterator[bytes]:
        topic = f"fetchbox.{stream}"
        info = await self.service.bus.topic(topic)
        assert info is not None
        for partition in range(info.partitions):
            async for stored in self.service.bus.read(topic, partition):
                yield stored.data


@contextlib.asynccontextmanager
async def laboratory(
    folder: Path, *, worker: bool = True, bus: Mapping[str, Any] | None = None, **given: Any
) -> AsyncIterator[Lab]:
    """`bus`: its settings; in memory by default."""
    bus_settings = {"registry": CollectorRegistry(), **(bus or {"driver": "memory"})}
    async with serving(fast(folder, **given), worker=worker, **bus_settings) as service:
        yield Lab(service, folder)
