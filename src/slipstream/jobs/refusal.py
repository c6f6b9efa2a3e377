"""Why the ingress does not take a job, in the terms of its API."""

from __future__ import annotations

import enum


class RefusalCode(enum.StrEnum):
    INVALID_PAYLOAD = "INVALID_PAYLOAD"
    UNSUPPORTED_JOB_TYPE = "UNSUPPORTED_JOB_TYPE"
    CONFLICT = "CONFLICT"
    PAYLOAD_TOO_LARGE = "PAYLOAD_TOO_LARGE"
    RATE_LIMITED = "RATE_LIMITED"
    HANDLER_FAILED = "HANDLER_FAILED"
    STORAGE_FAILED = "STORAGE_FAILED"
    PUBLISH_FAILED = "PUBLISH_FAILED"
    LEDGER_FAILED = "LEDGER_FAILED"

    @property
    def status(self) -> int:
        return _STATUS[self]


_STATUS = {
    RefusalCode.INVALID_PAYLOAD: 400,
    RefusalCode.UNSUPPORTED_JOB_TYPE: 403,
    RefusalCode.CONFLICT: 409,
    RefusalCode.PAYLOAD_TOO_LARGE: 413,
    RefusalCode.RATE_LIMITED: 429,
    RefusalCode.HANDLER_FAILED: 500,
    RefusalCode.STORAGE_FAILED: 502,
    RefusalCode.PUBLISH_FAILED: 503,
    RefusalCode.LEDGER_FAILED: 503,
}


class Refused(Exception):
    """A job that was not taken, or not to its end."""

    def __init__(
        self, code: RefusalCode, message: str, *, job_id: str = "", retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.job_id = job_id
        """Of a job that was begun: a repeat with the same idempotency key goes on with it."""
        self.retry_after_s = retry_after_s
