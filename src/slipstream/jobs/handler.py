"""What a type of job does its own way: looks over its manifests, makes its tasks, and hears of its end."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Iterable, Mapping
from importlib.metadata import entry_points
from typing import Any

import msgspec

from slipstream import references
from slipstream.jobs.config import JobConfig, JobType
from slipstream.jobs.errors import InvalidJobs
from slipstream.jobs.manifest import Manifest, Resource
from slipstream.jobs.messages import DownloadTask, JobStatus, ProxyHint, StorageHint, TaskAttributes, headers_of

ENTRY_POINTS = "slipstream.jobs"
"""The group of entry points in which a package offers handlers, each by the name of its type."""


class Job(msgspec.Struct, frozen=True):
    """What a handler is told of the job."""

    job_id: str
    job_type: str
    tenant: str
    manifest_key: str
    trace_id: str
    config: JobType


class JobHandler:
    """The default, and what others build on. Each method may be `async`.

    Example:
        class Photos(JobHandler):
            def prepare_manifest(self, job, manifest):
                if len(manifest.resources) > 50:
                    raise InvalidManifest("an album has at most 50 photos")
                return manifest
    """

    def prepare_manifest(self, job: Job, manifest: Manifest) -> Manifest | Awaitable[Manifest]:
        """What is to be stored and done in its place. Raises InvalidManifest for what it does not take."""
        return manifest

    def build_tasks(self, job: Job, manifest: Manifest) -> Iterable[DownloadTask] | Awaitable[Iterable[DownloadTask]]:
        """One for each resource. May be called again, for a job that was not published to its end: the ids must then
        be the same."""
        return [self.build_task(job, manifest, resource) for resource in manifest.resources]

    def build_task(self, job: Job, manifest: Manifest, resource: Resource) -> DownloadTask:
        config = job.config
        headers = {name.lower(): value for name, value in (*config.headers.items(), *resource.headers.items())}
        return DownloadTask(
            job_id=job.job_id,
            job_type=job.job_type,
            resource_id=resource.id,
            url=resource.url,
            headers=headers_of(headers.items()),
            proxy_hint=ProxyHint(primary_pool=config.proxies, fallbacks=config.proxy_fallbacks),
            storage_hint=StorageHint(bucket=config.storage, key_prefix=config.key_prefix, metadata=config.metadata),
            attributes=TaskAttributes(
                tags=resource.tags,
                checksum_hint=resource.checksum,
                mime_hint=resource.mime,
                extra=msgspec.json.encode(manifest.attributes) if manifest.attributes else b"",
            ),
            manifest_key=job.manifest_key,
            tenant=job.tenant,
            trace_id=job.trace_id,
        )

    def finalize_job(self, status: JobStatus) -> Awaitable[None] | None:
        """The job has come to its end: every resource is stored or a dead letter. Called again if the process dies
        before it was noted, and at the new end of a job of which dead letters were replayed."""


class Handlers:
    """Those of a configuration. Raises InvalidJobs if one cannot be found."""

    def __init__(self, config: JobConfig) -> None:
        self.config = config
        offered: Mapping[str, Any] = {each.name: each for each in entry_points(group=ENTRY_POINTS)}
        self._default = JobHandler()
        self._offered = offered
        self._by_type = {name: self._find(name, kind) for name, kind in config.types.items()}

    def of(self, job_type: str) -> JobHandler:
        handler = self._by_type.get(job_type)
        if handler is None:
            handler = self._by_type[job_type] = self._find(job_type, JobType())
            if handler is self._default:
                del self._by_type[job_type]  # anybody may think of any number of names
        return handler

    def _find(self, name: str, kind: JobType) -> JobHandler:
        reference = kind.handler or (name if name in self._offered else "")
        if not reference:
            return self._default
        found = self._load(name, reference)
        try:
            handler: Any = found() if inspect.isclass(found) else found
        except Exception as error:
            raise InvalidJobs(f"types.{name}.handler: {reference} cannot be made: {error}") from error
        missing = [each for each in ("prepare_manifest", "build_tasks", "finalize_job") if not hasattr(handler, each)]
        if missing:
            raise InvalidJobs(f"types.{name}.handler: {reference} has no {' and no '.join(missing)}")
        return handler  # type: ignore[no-any-return]

    def _load(self, name: str, reference: str) -> object:
        offered = self._offered.get(reference)
        try:
            if offered is not None:
                return offered.load()
            return references.find(reference)
        except references.NotFound as error:
            names = ", ".join(sorted(self._offered)) or "none"
            raise InvalidJobs(
                f"types.{name}.handler: {error}; entry points of {ENTRY_POINTS!r} that could be named: {names}"
            ) from error
        except Exception as error:
            raise InvalidJobs(f"types.{name}.handler: {reference} cannot be imported: {error}") from error


async def answer(result: Any) -> Any:
    """Of a method that may be `async`."""
    return await result if inspect.isawaitable(result) else result
