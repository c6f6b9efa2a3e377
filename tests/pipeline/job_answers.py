"""What the tables of download jobs must contain."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from slipstream.jobs.jobs_pb2 import DeadLetterTask, DownloadTask, JobLog, JobStatus
from tests.pipeline.job_story import DLQ, LOGS, STATUS, TASKS
from tests.pipeline.rows import Malformed, Row, minute_of, place_of, quarantined
from tests.pipeline.stored import Stored, time_of

LATEST_MS = 253_402_300_799_999
"""The end of the year 9999."""
LARGEST = (1 << 63) - 1
"""What a column of whole numbers holds."""

LARGEST_SUM = (1 << 62) - 1
"""Where sums end."""

ENDED = {"JOB_STATE_PARTIAL", "JOB_STATE_COMPLETED", "JOB_STATE_FAILED"}

Tables: TypeAlias = Mapping[str, list[Row]]


# Silver


def silver_jobs(log: Iterable[Stored]) -> dict[str, list[Row]]:
    """download_tasks, job_status, job_logs, dead_letters and, of their topics, quarantine."""
    kinds: dict[str, tuple[str, type[Message], Callable[[Any], Row]]] = {
        TASKS: ("download_tasks", DownloadTask, _task),
        STATUS: ("job_status", JobStatus, _status),
        LOGS: ("job_logs", JobLog, _log),
        DLQ: ("dead_letters", DeadLetterTask, _letter),
    }
    tables: dict[str, list[Row]] = {table: [] for table, _, _ in kinds.values()}
    tables["quarantine"] = []
    for one in log:
        if one.topic not in kinds:
            continue
        table, kind, row_of = kinds[one.topic]
        try:
            tables[table].append(place_of(one) | row_of(kind.FromString(one.value)))
        except (DecodeError, Malformed) as reason:
            tables["quarantine"].append(quarantined(one, kind.DESCRIPTOR.name, reason))
    return tables


def _task(task: DownloadTask) -> Row:
    if not task.job_id:
        raise Malformed("it has no job_id")
    return _fields(task)


def _status(status: JobStatus) -> Row:
    if not status.job_id:
        raise Malformed("it has no job_id")
    return _fields(status) | {"told_at": _time(status.timestamp_ms)}


def _log(log: JobLog) -> Row:
    if not log.job_id:
        raise Malformed("it has no job_id")
    size = log.fields.get("bytes", "")
    return _fields(log) | {
        "logged_at": _time(log.timestamp_ms),
        "step": log.fields.get("step"),
        "tenant": log.fields.get("tenant"),
        "bytes": int(size) if re.fullmatch("[0-9]{1,18}", size) else None,
    }


def _letter(letter: DeadLetterTask) -> Row:
    """That of a task which could not be read may have no job_id, and is a dead letter all the same."""
    if not letter.HasField("task"):
        raise Malformed("it has no task")
    task = letter.task
    return _fields(letter) | {
        "failed_at": _time(letter.failed_at_ms),
        "job_id": task.job_id,
        "resource_id": task.resource_id,
        "job_type": task.job_type,
        "tenant": task.tenant,
        "url": task.url,
        "host": host_of(task.url),
    }


def _time(ms: int) -> Any:
    if ms > LATEST_MS:
        raise Malformed(f"{ms} ms is past the year 9999")
    return time_of(ms)


def host_of(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _fields(message: Message) -> Row:
    """All fields, by the names of the schema: absent messages are null, lists and maps never are."""
    row: Row = {}
    for name, read in _readers(message.DESCRIPTOR):
        row[name] = read(message)
    return row


_known: dict[str, list[tuple[str, Callable[[Any], Any]]]] = {}


def _readers(kind: Any) -> list[tuple[str, Callable[[Any], Any]]]:
    if kind.full_name not in _known:
        _known[kind.full_name] = [(field.name, _reader(field)) for field in kind.fields]
    return _known[kind.full_name]


def _reader(field: FieldDescriptor) -> Callable[[Any], Any]:
    name = field.name
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return lambda message: dict(getattr(message, name))
    if field.message_type is not None and field.is_repeated:
        return lambda message: [_fields(one) for one in getattr(message, name)]
    if field.message_type is not None:
        return lambda message: _fields(getattr(message, name)) if message.HasField(name) else None
    if field.is_repeated:
        return lambda message: list(getattr(message, name))
    if field.enum_type is not None:
        names = {value.number: value.name for value in field.enum_type.values}
        return lambda message: names.get(getattr(message, name), str(getattr(message, name)))
    if field.cpp_type == FieldDescriptor.CPPTYPE_UINT64:
        return lambda message: _whole(getattr(message, name))
    return lambda message: getattr(message, name)


def _whole(number: int) -> int:
    if number > LARGEST:
        raise Malformed(f"{number} is more than 64 bits with a sign hold")
    return number


# Gold


def job_snapshots(statuses: Iterable[Row]) -> list[Row]:
    """The latest of each job, by what it says of when, and then by its place. What says nothing of when, or something
    that is more than five minutes ahead of the broker, is not believed."""
    jobs: dict[str, list[Row]] = {}
    for status in statuses:
        latest_at = status["timestamp"] + dt.timedelta(minutes=5)
        told_at = min(status["told_at"], latest_at) if status["timestamp_ms"] > 0 else status["timestamp"]
        jobs.setdefault(status["job_id"], []).append(status | {"told_at": told_at})
    rows: list[Row] = []
    for job_id, told in jobs.items():
        latest = max(told, key=lambda status: (status["told_at"], status["offset"], status["partition"]))
        row: Row = {"job_id": job_id}
        for name in (
            "job_type",
            "tenant",
            "state",
            "resources_total",
            "resources_completed",
            "resources_failed",
            "manifest_key",
            "last_error_code",
            "last_error_message",
            "log_offset",
            "offset",
        ):
            row[name] = latest[name]
        row["first_at"] = min(status["told_at"] for status in told)
        row["updated_at"] = latest["told_at"]
        row["ended_at"] = latest["told_at"] if latest["state"] in ENDED else None
        row["statuses"] = len(told)
        rows.append(row)
    return rows


COUNTED_STEPS = {"started": "started", "stored": "stored", "failed": "failed", "retry": "retried"}
COUNTED_STATES = {
    "JOB_STATE_QUEUED": "jobs",
    "JOB_STATE_COMPLETED": "jobs_completed",
    "JOB_STATE_PARTIAL": "jobs_partial",
    "JOB_STATE_FAILED": "jobs_failed",
}

THROUGHPUT = ("tasks", "started", "stored", "failed", "retried", "dead_letters", "bytes")
USAGE = (*COUNTED_STATES.values(), "tasks", "stored", "failed", "retried", "dead_letters", "bytes")


def job_throughput(tables: Tables) -> list[Row]:
    return _summed(tables, "minute", minute_of, THROUGHPUT)


def tenant_usage(tables: Tables) -> list[Row]:
    return _summed(tables, "day", lambda time: time.date(), USAGE)


def _summed(tables: Tables, period: str, period_of: Callable[[Any], Any], columns: tuple[str, ...]) -> list[Row]:
    """Only what has a column makes a row."""
    rows: dict[tuple[str, Any], Row] = {}
    for row, tenant, column, amount in _counts(tables):
        if column not in columns or not amount:
            continue
        of = period_of(row["timestamp"])
        empty: Row = {"tenant": tenant, period: of, **dict.fromkeys(columns, 0)}
        found = rows.setdefault((tenant, of), empty)
        found[column] = min(found[column] + amount, LARGEST_SUM)
    return list(rows.values())


def _counts(tables: Tables) -> Iterator[tuple[Row, str, str, int]]:
    for row in tables["download_tasks"]:
        yield row, row["tenant"], "tasks", 1
    for row in tables["dead_letters"]:
        yield row, row["tenant"], "dead_letters", 1
    for row in tables["job_status"]:
        if row["state"] in COUNTED_STATES:
            yield row, row["tenant"], COUNTED_STATES[row["state"]], 1
    for row in tables["job_logs"]:
        fields = row["fields"]
        step, tenant = fields.get("step"), fields.get("tenant", "")
        if step in COUNTED_STEPS:
            yield row, tenant, COUNTED_STEPS[step], 1
        if step == "stored" and re.fullmatch("[0-9]{1,18}", fields.get("bytes", "")):
            yield row, tenant, "bytes", int(fields["bytes"])


def dead_letter_causes(letters: Iterable[Row]) -> list[Row]:
    causes: dict[tuple[str, str, str], list[Row]] = {}
    for letter in letters:
        causes.setdefault((letter["failure_code"], letter["host"], letter["tenant"]), []).append(letter)
    rows: list[Row] = []
    for (failure_code, host, tenant), found in causes.items():
        latest = max(found, key=lambda letter: (letter["timestamp"], letter["offset"], letter["partition"]))
        rows.append(
            {
                "failure_code": failure_code,
                "host": host,
                "tenant": tenant,
                "count": len(found),
                "first_at": min(letter["timestamp"] for letter in found),
                "last_at": max(letter["timestamp"] for letter in found),
                "example_job_id": latest["job_id"],
                "example_resource_id": latest["resource_id"],
                "example_url": latest["url"],
                "example_message": latest["failure_message"],
                "example_topic": latest["topic"],
                "example_partition": latest["partition"],
                "example_offset": latest["offset"],
            }
        )
    return rows
