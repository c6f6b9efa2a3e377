"""Download jobs: a manifest comes in, and every resource in it is stored with its checksum, or is a dead letter.

    async with serving(worker=True) as service:
        accepted = await service.ingress.submit("photos", manifest)

The ingress stores the manifest and publishes a task for each resource; workers, any number of them, download and store;
the operator's ledger adds up what became of them. All of them talk over five streams of protobuf messages
(`proto/jobs.proto`) on the bus, and see of each other nothing else. Jobs stand on the bus and on an object store; they
touch no broker, and no disk but those of the ledger and of downloads that are under way.
"""

import importlib
from typing import TYPE_CHECKING

# Not only when it is asked for, as the others: it has the name of its module, which would be found in its place.
from slipstream.jobs.provision import provision

if TYPE_CHECKING:
    from slipstream.jobs.client import JobsClient, ServiceError, ServiceUnreachable
    from slipstream.jobs.dead_letters import Selection
    from slipstream.jobs.errors import InvalidJobs, JobsError, MalformedMessage
    from slipstream.jobs.failure import Code, TaskFailed
    from slipstream.jobs.handler import Job, JobHandler
    from slipstream.jobs.ingress import Accepted
    from slipstream.jobs.ledger import JobSnapshot, ResourceSnapshot
    from slipstream.jobs.manifest import InvalidManifest, Manifest, Resource
    from slipstream.jobs.messages import DeadLetterTask, DownloadTask, JobLog, JobState, JobStatus
    from slipstream.jobs.refusal import Refused
    from slipstream.jobs.server import listening
    from slipstream.jobs.service import Service, serving, working
    from slipstream.jobs.settings import JobSettings, load_settings

__all__ = [
    "Accepted",
    "Code",
    "DeadLetterTask",
    "DownloadTask",
    "InvalidJobs",
    "InvalidManifest",
    "Job",
    "JobHandler",
    "JobLog",
    "JobSettings",
    "JobSnapshot",
    "JobState",
    "JobStatus",
    "JobsClient",
    "JobsError",
    "MalformedMessage",
    "Manifest",
    "Refused",
    "Resource",
    "ResourceSnapshot",
    "Selection",
    "Service",
    "ServiceError",
    "ServiceUnreachable",
    "TaskFailed",
    "listening",
    "load_settings",
    "provision",
    "serving",
    "working",
]

_HOMES = {
    "client": ("JobsClient", "ServiceError", "ServiceUnreachable"),
    "dead_letters": ("Selection",),
    "errors": ("InvalidJobs", "JobsError", "MalformedMessage"),
    "failure": ("Code", "TaskFailed"),
    "handler": ("Job", "JobHandler"),
    "ingress": ("Accepted",),
    "ledger": ("JobSnapshot", "ResourceSnapshot"),
    "manifest": ("InvalidManifest", "Manifest", "Resource"),
    "messages": ("DeadLetterTask", "DownloadTask", "JobLog", "JobState", "JobStatus"),
    "refusal": ("Refused",),
    "server": ("listening",),
    "service": ("Service", "serving", "working"),
    "settings": ("JobSettings", "load_settings"),
}

if not TYPE_CHECKING:  # a name that is not there is for mypy to find

    def __getattr__(name: str) -> object:
        """Only when it is asked for: the pipeline reads the messages of jobs, and has no object store installed."""
        for home, names in _HOMES.items():
            if name in names:
                found: object = getattr(importlib.import_module(f"{__name__}.{home}"), name)
                globals()[name] = found
                return found
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
