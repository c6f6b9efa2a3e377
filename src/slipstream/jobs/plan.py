"""What a worker makes of a task before it does anything: from where, by which proxies, to where, checked by what."""

from __future__ import annotations

import msgspec

from slipstream.jobs.config import JobConfig, JobType
from slipstream.jobs.download.checksum import Checksum, parse_checksum
from slipstream.jobs.download.proxies import Pools
from slipstream.jobs.failure import Code, TaskFailed
from slipstream.jobs.keys import check_prefix, metadata_trouble, resource_key
from slipstream.jobs.messages import DownloadTask
from slipstream.jobs.storage import Storage, Storages

_NOTHING_SAID = JobType()


class Plan(msgspec.Struct, frozen=True):
    headers: list[tuple[str, str]]
    proxies: list[str | None]
    """In the order they are tried; None is without one."""
    checksum: Checksum | None
    storage: Storage
    key: str
    metadata: dict[str, str]
    decode: bool = True


class Planner:
    """What a task leaves open is filled in from the configuration of its type: direct producers know nothing of it."""

    def __init__(self, config: JobConfig, storages: Storages) -> None:
        """Raises InvalidJobs for proxies that cannot be right."""
        self._config = config
        self._storages = storages
        self._pools = Pools({name: msgspec.structs.asdict(pool) for name, pool in config.proxies.items()})

    def plan(self, task: DownloadTask) -> Plan:
        """Raises TaskFailed for what cannot be done, by whomever."""
        kind = self._config.type(task.job_type) if task.job_type else _NOTHING_SAID
        if kind is None:
            raise TaskFailed(Code.HANDLER_UNKNOWN_TYPE, f"there is no job type {task.job_type!r:.80} here")
        hint = task.storage_hint
        return Plan(
            headers=self._headers(task, kind),
            proxies=self._pools.candidates(
                task.proxy_hint.primary_pool or kind.proxies,
                list(task.proxy_hint.fallbacks) or kind.proxy_fallbacks,
                task.resource_id,
            ),
            checksum=_checksum(task.attributes.checksum_hint),
            storage=self._storage(hint.bucket or kind.storage),
            key=_key(task, hint.key_prefix or kind.key_prefix),
            metadata=_metadata({**kind.metadata, **hint.metadata}),
            decode=kind.decode,
        )

    def _headers(self, task: DownloadTask, kind: JobType) -> list[tuple[str, str]]:
        given = [(header.name, header.value) for header in task.headers]
        names = {name for name, _ in given}
        return given + [(name, value) for name, value in kind.headers.items() if name.lower() not in names]

    def _storage(self, name: str) -> Storage:
        found = self._storages.find(name)
        if found is None:
            raise TaskFailed(Code.STORAGE_UNKNOWN_BUCKET, f"there is no storage {name!r:.80} in the configuration here")
        return found


def _checksum(hint: str) -> Checksum | None:
    try:
        return parse_checksum(hint) if hint else None
    except ValueError as error:
        raise TaskFailed(Code.DOWNLOAD_CHECKSUM, f"checksum_hint: {error}") from error


def _metadata(metadata: dict[str, str]) -> dict[str, str]:
    if trouble := metadata_trouble(metadata):
        raise TaskFailed(Code.STORAGE_INVALID_METADATA, f"metadata: {trouble}")
    return metadata


def _key(task: DownloadTask, prefix: str) -> str:
    if prefix and (trouble := check_prefix(prefix)):
        raise TaskFailed(Code.STORAGE_INVALID_KEY, f"key_prefix: {trouble}")
    return resource_key(prefix, task.job_type or "direct", task.job_id, task.resource_id)
