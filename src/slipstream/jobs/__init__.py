"""Download jobs: a manifest comes in, and every resource in it is stored with its checksum, or is a dead letter.

    async with serving(worker=True) as service:
        accepted = await service.ingress.submit("photos", manifest)

The ingress stores the manifest and publishes a task for each resource; workers, any number of them, download and store;
the operator's ledger adds up what became of them. All of them talk over four streams of protobuf messages
(`proto/jobs.proto`) on the bus, and see of each other nothing else. Jobs stand on the bus and on an object store; they
touch no broker, and no disk but those of the ledger and of downloads that are under way.
"""

from slipstream.jobs.client import JobsClient, ServiceError, ServiceUnreachable
from slipstream.jobs.dead_letters import Selection
from slipstream.jobs.errors import InvalidJobs, JobsError, MalformedMessage
from slipstream.jobs.failure import Code, TaskFailed
from slipstream.jobs.handler import Job, JobHandler
from slipstream.jobs.ingress import Accepted
from slipstream.jobs.ledger import JobSnapshot, ResourceSnapshot
from slipstream.jobs.manifest import InvalidManifest, Manifest, Resource
from slipstream.jobs.messages import DeadLetterTask, DownloadTask, JobLog, JobState, JobStatus
from slipstream.jobs.provision import provision
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
