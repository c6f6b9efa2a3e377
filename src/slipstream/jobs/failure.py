"""Why a task failed: a code that machines sort by, a message for people, and whether trying again makes sense."""

from __future__ import annotations

import enum


class Code(enum.StrEnum):
    """What may go wrong with a task. The first word says whose fault it is; docs/jobs.md says what to do about each."""

    DOWNLOAD_TIMEOUT = "DOWNLOAD_TIMEOUT"
    DOWNLOAD_DNS = "DOWNLOAD_DNS"
    DOWNLOAD_CONNECT = "DOWNLOAD_CONNECT"
    DOWNLOAD_TLS = "DOWNLOAD_TLS"
    DOWNLOAD_RESET = "DOWNLOAD_RESET"
    DOWNLOAD_PROTOCOL = "DOWNLOAD_PROTOCOL"
    DOWNLOAD_HTTP_STATUS = "DOWNLOAD_HTTP_STATUS"
    DOWNLOAD_INVALID_URL = "DOWNLOAD_INVALID_URL"
    DOWNLOAD_INVALID_HEADER = "DOWNLOAD_INVALID_HEADER"
    DOWNLOAD_FORBIDDEN_ADDRESS = "DOWNLOAD_FORBIDDEN_ADDRESS"
    DOWNLOAD_TOO_MANY_REDIRECTS = "DOWNLOAD_TOO_MANY_REDIRECTS"
    DOWNLOAD_TOO_LARGE = "DOWNLOAD_TOO_LARGE"
    DOWNLOAD_BOMB = "DOWNLOAD_BOMB"
    DOWNLOAD_ENCODING = "DOWNLOAD_ENCODING"
    DOWNLOAD_CHECKSUM = "DOWNLOAD_CHECKSUM"
    DOWNLOAD_PROXY = "DOWNLOAD_PROXY"
    UPLOAD_FAILED = "UPLOAD_FAILED"
    UPLOAD_TIMEOUT = "UPLOAD_TIMEOUT"
    UPLOAD_DENIED = "UPLOAD_DENIED"
    HANDLER_UNKNOWN_TYPE = "HANDLER_UNKNOWN_TYPE"
    HANDLER_UNKNOWN_PROXY_POOL = "HANDLER_UNKNOWN_PROXY_POOL"
    STORAGE_UNKNOWN_BUCKET = "STORAGE_UNKNOWN_BUCKET"
    STORAGE_INVALID_KEY = "STORAGE_INVALID_KEY"
    STORAGE_INVALID_METADATA = "STORAGE_INVALID_METADATA"
    SYSTEM_MALFORMED_TASK = "SYSTEM_MALFORMED_TASK"
    SYSTEM_EXHAUSTED = "SYSTEM_EXHAUSTED"
    SYSTEM_SPOOL = "SYSTEM_SPOOL"


class TaskFailed(Exception):
    """An attempt at a task that came to nothing.

    Example:
        raise TaskFailed(Code.DOWNLOAD_HTTP_STATUS, "the server answered 503", is_retryable=True, retry_after_s=30)
    """

    def __init__(
        self,
        code: Code,
        message: str,
        *,
        is_retryable: bool = False,
        retry_after_s: float | None = None,
        is_throttled: bool = False,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.is_retryable = is_retryable
        self.retry_after_s = retry_after_s
        """The pause that the server asked for, in seconds."""
        self.is_throttled = is_throttled
        """The server works, and refuses requests because there are too many."""

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"
