"""The messages of the streams: encoded, decoded, checked, and as JSON for people."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Iterable
from typing import TypeVar

from google.protobuf import json_format
from google.protobuf.message import DecodeError, EncodeError, Message

from slipstream.jobs.errors import MalformedMessage
from slipstream.jobs.jobs_pb2 import (
    DeadLetterTask,
    DownloadTask,
    HttpHeader,
    JobLog,
    JobState,
    JobStatus,
    LogLevel,
    ProxyHint,
    StorageHint,
    TaskAttributes,
)

__all__ = [
    "DeadLetterTask",
    "DownloadTask",
    "HttpHeader",
    "JobLog",
    "JobState",
    "JobStatus",
    "LogLevel",
    "ProxyHint",
    "StorageHint",
    "TaskAttributes",
    "canonical_headers",
    "check_trace_id",
    "decode",
    "decode_task",
    "encode",
    "encode_task",
    "from_json",
    "to_json",
]

log = logging.getLogger(__name__)

MessageT = TypeVar("MessageT", bound=Message)

NAME_CHARS_MAX = 128
"""Of the ids of jobs and resources."""

_TRACE_ID = re.compile(r"(?:[0-9a-f]{16}|[0-9a-f]{32})\Z")


def encode(message: Message) -> bytes:
    """Unknown fields included, so that what passes through keeps what a newer schema has put into it."""
    try:
        return message.SerializeToString()
    except (EncodeError, ValueError) as error:
        raise MalformedMessage(f"a {message.DESCRIPTOR.name} cannot be encoded: {error}") from error


def decode(kind: type[MessageT], data: bytes) -> MessageT:
    """Raises MalformedMessage.

    Example:
        status = decode(JobStatus, stored.data)
    """
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise MalformedMessage(f"{len(data)} bytes are no {kind.DESCRIPTOR.name}: {error}") from error


def encode_task(task: DownloadTask) -> bytes:
    """As a producer should: checked, and with canonical headers. The task is changed accordingly.

    Example:
        await bus.publish("fetchbox.jobs.tasks", encode_task(task), key=task.job_id)
    """
    canonical_headers(task)
    check_task(task)
    return encode(task)


def decode_task(data: bytes) -> DownloadTask:
    """Raises MalformedMessage for what no worker could do."""
    task = decode(DownloadTask, data)
    _mend_trace_id(task)
    check_task(task)
    canonical_headers(task)
    return task


def _mend_trace_id(task: DownloadTask) -> None:
    """Replace a malformed trace id by one that is the same at every delivery: it is for diagnosis, and no reason to
    refuse a download."""
    trace_id = task.trace_id.strip().lower()
    if trace_id and not _TRACE_ID.match(trace_id):
        trace_id = hashlib.sha256(f"{task.job_id}\n{task.resource_id}".encode()).hexdigest()[:32]
        log.warning("trace_id %.80r of %s is malformed: %s takes its place", task.trace_id, task.job_id, trace_id)
    task.trace_id = trace_id


def check_task(task: DownloadTask) -> None:
    """Raises MalformedMessage."""
    for name in ("job_id", "resource_id"):
        if not 0 < len(getattr(task, name)) <= NAME_CHARS_MAX:
            raise MalformedMessage(f"a DownloadTask needs a {name} of 1 to {NAME_CHARS_MAX} characters")
    if not task.url:
        raise MalformedMessage("a DownloadTask needs a url")
    check_trace_id(task.trace_id)


def check_trace_id(trace_id: str) -> None:
    """Raises MalformedMessage, unless it is empty or 16 or 32 hex digits."""
    if trace_id and not _TRACE_ID.match(trace_id):
        raise MalformedMessage(f"trace_id {trace_id!r:.80} must be 16 or 32 hex digits in lower case, or nothing")


def canonical_headers(task: DownloadTask) -> None:
    """Their names in lower case."""
    for header in task.headers:
        header.name = header.name.strip().lower()


def headers_of(pairs: Iterable[tuple[str, str]]) -> list[HttpHeader]:
    return [HttpHeader(name=name.strip().lower(), value=value) for name, value in pairs]


def to_json(message: Message) -> str:
    """For people and for logs: the names of the schema, on one line."""
    return json_format.MessageToJson(message, preserving_proto_field_name=True, indent=None, ensure_ascii=False)


def from_json(kind: type[MessageT], text: str | bytes) -> MessageT:
    """Raises MalformedMessage.

    Example:
        task = from_json(DownloadTask, '{"job_id": "j1", "resource_id": "r1", "url": "https://…"}')
    """
    try:
        value = json.loads(text)
        if not isinstance(value, dict):  # of a list, protobuf would make an empty message
            raise MalformedMessage(f"this JSON is no {kind.DESCRIPTOR.name}: an object is wanted")
        return json_format.ParseDict(value, kind())
    except (json_format.ParseError, ValueError, RecursionError) as error:
        raise MalformedMessage(f"this JSON is no {kind.DESCRIPTOR.name}: {error}") from error
