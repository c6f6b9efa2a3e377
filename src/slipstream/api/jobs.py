"""Download jobs over the console: what the service of jobs answers to operators, passed on."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec


class JobsQuery(msgspec.Struct, kw_only=True, frozen=True):
    """The parameters of `GET /v2/jobs`."""

    state: str = ""
    tenant: str = ""
    type: str = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 100
    before: str = ""
    """The `next` of the page before."""


class JobList(msgspec.Struct, frozen=True):
    jobs: list[dict[str, Any]]
    counts: dict[str, int]
    """State → how many there are."""
    next: str | None = None


class JobInfo(msgspec.Struct, frozen=True, kw_only=True):
    job_id: str
    job_type: str
    tenant: str
    state: str
    resources_total: int
    resources_completed: int
    resources_failed: int
    created_ms: int
    updated_ms: int
    lost_tasks: int = 0
    """Resources whose task retention has removed before it was done."""
    bytes_stored: int = 0
    """Size of the resources that were stored."""
    bytes_under_way: int = 0
    """Bytes that have come of downloads that have not ended."""
    bytes_per_s: int = 0
    """Speed of the downloads under way."""
    remaining_s: int | None = None
    """Estimate of the time until all is downloaded; None where nothing is known to go by."""
    waiting_tasks: int = 0
    """Tasks that wait for `waiting_host`, which has asked for it (429, or 503 with Retry-After)."""
    waiting_host: str = ""
    waiting_until_ms: int = 0
    """When the host may be asked again."""
    resources: list[dict[str, Any]] = []


class JobRequeued(msgspec.Struct, frozen=True):
    """`POST /v2/jobs/{job}/requeue`"""

    job_id: str
    tasks: int
    """How many were published."""


class JobLogQuery(msgspec.Struct, kw_only=True, frozen=True):
    """The parameters of `GET /v2/jobs/{job_id}/logs`; a `Last-Event-ID` goes on behind it."""

    since_offset: int | None = None
    limit: int | None = None
    follow: bool = False
    """Go on until the job has ended."""


class JobLogLine(msgspec.Struct, frozen=True, kw_only=True):
    """The data of a server-sent event named `log`, whose id is its offset."""

    job_id: str = ""
    resource_id: str = ""
    level: str = ""
    message: str = ""
    timestamp_ms: str = ""


class JobDeadLettersQuery(msgspec.Struct, kw_only=True, frozen=True):
    """The parameters of `GET /v2/job-dead-letters`."""

    job_id: str = ""
    resource_id: str = ""
    code: str = ""
    """Or the beginning of one, such as DOWNLOAD_."""
    tenant: str = ""
    job_type: str = ""
    since_ms: int = 0
    until_ms: int = 0
    dealt_with: bool = False
    limit: int = 100


class JobDeadLetters(msgspec.Struct, frozen=True):
    letters: list[dict[str, Any]]
    total: int


class JobReplayRequest(msgspec.Struct, frozen=True, kw_only=True):
    select: dict[str, Any] = {}
    """The parameters of `GET /v2/job-dead-letters`."""
    all: bool = False
    """Said by who selects nothing, and means it."""
    discard: bool = False
    dry_run: bool = False


class JobReplayed(msgspec.Struct, frozen=True, kw_only=True):
    """How many letters were found, and what became of them."""

    selected: int = 0
