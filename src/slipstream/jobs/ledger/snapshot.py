"""A job and a resource as the ledger knows them."""

from __future__ import annotations

import enum
from typing import Literal, TypeAlias

import msgspec

from slipstream.jobs.messages import JobState, JobStatus

State: TypeAlias = Literal["queued", "in_progress", "partial", "completed", "failed", "cancelled", "paused"]

ENDED: frozenset[State] = frozenset({"partial", "completed", "failed", "cancelled"})

STATES: dict[State, JobState] = {
    "queued": JobState.JOB_STATE_QUEUED,
    "in_progress": JobState.JOB_STATE_IN_PROGRESS,
    "partial": JobState.JOB_STATE_PARTIAL,
    "completed": JobState.JOB_STATE_COMPLETED,
    "failed": JobState.JOB_STATE_FAILED,
    "cancelled": JobState.JOB_STATE_CANCELLED,
    "paused": JobState.JOB_STATE_PAUSED,
}


class Rank(enum.IntEnum):
    """How far a resource is known to have come. It only ever rises, so that what is heard twice, late or in another
    order comes to the same: one that was stored is stored, whatever a second worker met with; one that failed may
    still be stored, by a replay."""

    QUEUED = 0
    IN_PROGRESS = 1
    FAILED = 2
    COMPLETED = 3

    @property
    def label(self) -> str:
        return self.name.lower()


class JobSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    job_id: str
    job_type: str
    tenant: str
    state: State
    resources_total: int
    resources_completed: int
    resources_failed: int
    manifest_key: str
    last_error_code: str
    last_error_message: str
    log_offset: int
    """Where its logs begin in its partition of `jobs.logs`; -1 where nobody tells."""
    log_partition: int
    created_ms: int
    updated_ms: int
    lost_tasks: int = 0
    """Resources whose task retention has removed before it was done; `requeue` publishes them again."""
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

    @property
    def is_ended(self) -> bool:
        return self.state in ENDED

    def status(self) -> JobStatus:
        """As it is told on `jobs.status`."""
        return JobStatus(
            job_id=self.job_id,
            job_type=self.job_type,
            state=STATES[self.state],
            resources_total=self.resources_total,
            resources_completed=self.resources_completed,
            resources_failed=self.resources_failed,
            manifest_key=self.manifest_key,
            tenant=self.tenant,
            last_error_code=self.last_error_code,
            last_error_message=self.last_error_message,
            log_offset=max(0, self.log_offset),
            timestamp_ms=self.updated_ms,
        )


class ResourceSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    resource_id: str
    state: str
    key: str
    size: int
    sha256: str
    mime: str
    error_code: str
    error_message: str
    attempts: int
    updated_ms: int
    storage: str = ""
    """Which of the configured, where it is not the default."""


def state_of(total: int, completed: int, failed: int, *, begun: bool) -> State:
    """QUEUED → IN_PROGRESS → PARTIAL, COMPLETED or FAILED."""
    if total and completed + failed >= total:
        if not failed:
            return "completed"
        return "partial" if completed else "failed"
    return "in_progress" if begun or completed or failed else "queued"
