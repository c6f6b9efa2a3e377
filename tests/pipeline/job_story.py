"""The part of the scripted stream that download jobs say."""

from __future__ import annotations

import datetime as dt
import itertools
import random
from collections.abc import Iterator
from typing import TypeAlias

from google.protobuf.message import DecodeError

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
from tests.pipeline.said import DAY, TENANTS, Said

TASKS = "fetchbox.jobs.tasks"
STATUS = "fetchbox.jobs.status"
LOGS = "fetchbox.jobs.logs"
DLQ = "fetchbox.jobs.dlq"

JOB_TYPES = ("mirror", "thumbnails", "audit")
URLS = (
    "https://img.example/a/{}.png",
    "http://IMG.Example:8080/b/{}.png",
    "https://somebody:secret@Files.Example:8443/c/{}?q=1#top",
    "https://cdn.example./d/{}",
    "http://[2001:DB8::1]:81/e/{}",
    "http://192.0.2.7/f/{}",
)
CODES = ("DOWNLOAD_TIMEOUT", "DOWNLOAD_HTTP_STATUS", "UPLOAD_DENIED", "SYSTEM_EXHAUSTED")

QUEUED, IN_PROGRESS = JobState.JOB_STATE_QUEUED, JobState.JOB_STATE_IN_PROGRESS
PARTIAL, COMPLETED, FAILED = JobState.JOB_STATE_PARTIAL, JobState.JOB_STATE_COMPLETED, JobState.JOB_STATE_FAILED

Message: TypeAlias = DownloadTask | JobStatus | JobLog | DeadLetterTask

YEAR_10000_MS = 253_402_300_800_000


def jobs(rng: random.Random, minutes: int) -> Iterator[Said]:
    """One job after the other, each from its beginning to its end, or to where nothing more is heard of it."""
    for number in itertools.count():
        yield from _Job(rng, number, DAY + dt.timedelta(minutes=rng.random() * minutes)).lives()


class _Job:
    def __init__(self, rng: random.Random, number: int, begins: dt.datetime) -> None:
        self.rng = rng
        self.job_id = f"job-{number}"
        self.job_type = rng.choice(JOB_TYPES)
        self.tenant = rng.choice(TENANTS)
        self.now_ms = round(begins.timestamp() * 1000)
        self.total = rng.randint(1, 7)
        self.completed = self.failed = 0
        self.error = ("", "")

    def lives(self) -> Iterator[Said]:
        rng = self.rng
        yield self.status(QUEUED)
        for number in range(self.total):
            yield self.said(TASKS, self.task(number))
        if rng.random() < 0.05:
            return  # nobody has taken it up
        for number in range(self.total):
            yield from self.download(number)
            if number == self.total // 2:
                yield from self.progress()
        if rng.random() < 0.9:
            yield self.end()

    def progress(self) -> Iterator[Said]:
        """Some of it comes out of order, some at the same moment."""
        before = self.status(IN_PROGRESS)
        after = self.status(IN_PROGRESS if self.rng.random() < 0.8 else 17)
        shape = self.rng.random()
        if shape < 0.2:
            yield from (after, before)
        elif shape < 0.4:
            now_ms = self.now_ms
            yield before
            self.now_ms = now_ms - self.last_step_ms
            yield self.status(IN_PROGRESS)  # which is stored later, and was told at the time of `before`
            self.now_ms = now_ms
        else:
            yield before

    def end(self) -> Said:
        if not self.failed:
            return self.status(COMPLETED)
        return self.status(PARTIAL if self.completed else FAILED)

    def download(self, number: int) -> Iterator[Said]:
        rng, task = self.rng, self.task(number)
        started = {"step": "started", "job_type": task.job_type, "manifest_key": task.manifest_key, "url": task.url}
        yield self.log(task, "started", self.of_tenant(started))
        while rng.random() < 0.1:
            code = rng.choice(CODES)
            fields = self.of_tenant({"step": "retry", "code": code, "attempts": "1"}, 0.5)
            yield self.log(task, "attempt 1 failed, the next is in 0.2 s", fields, LogLevel.LOG_LEVEL_WARN)
        if rng.random() < 0.1:
            yield from self.dies(task)
            return
        size = rng.randrange(10_000_000)
        yield self.log(task, f"downloaded {size} bytes", {"step": "downloaded", "bytes": str(size), "status": "200"})
        self.completed += 1
        stored = self.of_tenant({"step": "stored", "bytes": str(size), "key": f"{self.job_id}/{number}"}, 0.5)
        yield self.log(task, f"stored {size} bytes", stored)
        if rng.random() < 0.1:
            yield self.log(task, "the picture is rather dark", {})  # somebody's own words

    def dies(self, task: DownloadTask) -> Iterator[Said]:
        code = self.rng.choice(CODES)
        self.failed += 1
        self.error = (code, f"{task.url} cannot be had")
        task.attempt = self.rng.randint(1, 5)
        letter = DeadLetterTask(
            task=task,
            failure_code=code,
            failure_message=self.error[1],
            attempts=task.attempt,
            failed_at_ms=self.later(),
        )
        yield self.said(DLQ, letter)
        yield self.log(task, self.error[1], self.of_tenant({"step": "failed", "code": code}), LogLevel.LOG_LEVEL_ERROR)

    # Its messages

    def task(self, number: int) -> DownloadTask:
        """The same for the same number."""
        resource_id = f"r{number}"
        task = DownloadTask(
            job_id=self.job_id,
            job_type=self.job_type,
            resource_id=resource_id,
            url=URLS[(len(self.job_id) * 31 + int(self.job_id[4:]) + number) % len(URLS)].format(number),
            manifest_key=f"manifests/{self.job_type}/{self.job_id}/metadata.json",
            tenant=self.tenant,
        )
        if number % 2:
            task.trace_id = f"{number:032x}"
            task.headers.add(name="accept", value="image/png")
            task.headers.add(name="x-number", value=str(number))
        if number % 3 == 1:
            task.storage_hint.CopyFrom(StorageHint(bucket="pictures", key_prefix="a/b", metadata={"who": self.tenant}))
        if number % 3 == 2:
            task.proxy_hint.CopyFrom(ProxyHint(primary_pool="eu", fallbacks=["us", "none"]))
            task.attributes.CopyFrom(TaskAttributes(tags={"n": str(number)}, mime_hint="image/png", extra=b"\x00\xff"))
        return task

    def status(self, state: int) -> Said:
        code, message = self.error
        status = JobStatus(
            job_id=self.job_id,
            job_type=self.job_type,
            resources_total=self.total,
            resources_completed=self.completed,
            resources_failed=self.failed,
            manifest_key=f"manifests/{self.job_type}/{self.job_id}/metadata.json",
            tenant=self.tenant,
            last_error_code=code,
            last_error_message=message,
            log_offset=self.rng.randrange(1 << 40),
            timestamp_ms=self.later(),
        )
        status.state = state  # type: ignore[assignment] # a number that no name is known of
        return self.said(STATUS, status)

    def log(
        self, task: DownloadTask, text: str, fields: dict[str, str], level: LogLevel = LogLevel.LOG_LEVEL_INFO
    ) -> Said:
        log = JobLog(
            job_id=self.job_id,
            resource_id=task.resource_id,
            level=level,
            message=text,
            fields=fields,
            timestamp_ms=self.later(),
            trace_id=task.trace_id,
        )
        return self.said(LOGS, log)

    def said(self, topic: str, message: Message) -> Said:
        attributes = None
        if self.rng.random() < 0.5:
            attributes = {"contentType": "application/x-protobuf", "correlationId": self.job_id}
        return Said(topic, self.job_id.encode(), message.SerializeToString(), attributes)

    def of_tenant(self, fields: dict[str, str], likely: float = 1.0) -> dict[str, str]:
        """Not every log says whose it is, and nobody's says nothing."""
        if self.tenant and self.rng.random() < likely:
            fields["tenant"] = self.tenant
        return fields

    def later(self) -> int:
        self.last_step_ms = self.rng.randint(1, 900)
        self.now_ms += self.last_step_ms
        return self.now_ms


# What is odd, and what is corrupt


def job_oddities(rng: random.Random) -> Iterator[Said]:
    """Each of them once, whatever the length of the story."""
    at_ms = round(DAY.timestamp() * 1000)
    yield from _corrupt(at_ms)
    yield from _odd_tasks()
    yield from _odd_statuses(at_ms)
    yield from _odd_logs(at_ms)
    yield from _odd_letters(at_ms)


def _corrupt(at_ms: int) -> Iterator[Said]:
    task = DownloadTask(job_id="job-c", resource_id="r", url="https://img.example/c", trace_id="0" * 16)
    whole: list[tuple[str, Message]] = [
        (TASKS, task),
        (STATUS, JobStatus(job_id="job-c", state=QUEUED, timestamp_ms=at_ms)),
        (LOGS, JobLog(job_id="job-c", message="started", fields={"step": "started"}, timestamp_ms=at_ms)),
        (DLQ, DeadLetterTask(task=task, failure_code="UPLOAD_FAILED", failed_at_ms=at_ms)),
    ]
    for topic, message in whole:
        data = message.SerializeToString()
        yield Said(topic, b"job-c", _unreadable(message, data[:-1]), {"correlationId": "job-c"})
        yield Said(topic, b"", b"")
        yield Said(topic, b"job-c", _unreadable(message, data.replace(b"job-c", b"job-\xff")))
    yield Said(
        LOGS, b"job-c", _unreadable(JobLog(), whole[2][1].SerializeToString().replace(b"started", b"start\xc3d"))
    )
    for ms in (YEAR_10000_MS, 1 << 63, (1 << 64) - 1):
        yield Said(STATUS, b"job-c", JobStatus(job_id="job-c", state=FAILED, timestamp_ms=ms).SerializeToString())
        yield Said(LOGS, b"job-c", JobLog(job_id="job-c", timestamp_ms=ms).SerializeToString())
        yield Said(DLQ, b"job-c", DeadLetterTask(task=task, failure_code="X", failed_at_ms=ms).SerializeToString())
    past_all = JobStatus(job_id="job-c", state=FAILED, timestamp_ms=at_ms, log_offset=1 << 63)
    yield Said(STATUS, b"job-c", past_all.SerializeToString())


def _unreadable(kind: Message, data: bytes) -> bytes:
    """Checked, so that the story does not take for corrupt what google's library reads."""
    try:
        kind.FromString(data)
    except DecodeError:
        return data
    raise AssertionError(f"{data!r} can be read after all")


def _odd_tasks() -> Iterator[Said]:
    task = DownloadTask(job_id="job-odd", resource_id="r", url="nowhere", attempt=(1 << 32) - 1, tenant="acme")
    task.headers.append(HttpHeader())
    task.storage_hint.metadata[""] = ""
    task.attributes.SetInParent()
    yield Said(TASKS, b"job-odd", task.SerializeToString())
    # In two pieces, which protobuf makes one of.
    halves = DownloadTask(job_id="no", proxy_hint=ProxyHint(primary_pool="eu", fallbacks=["a"]))
    others = DownloadTask(job_id="job-odd", tenant="acme", proxy_hint=ProxyHint(fallbacks=["b"]))
    yield Said(TASKS, b"job-odd", halves.SerializeToString() + others.SerializeToString())
    # With a field of a later schema: number 900, text.
    newer = DownloadTask(job_id="job-odd", url="x\x00y").SerializeToString() + b"\xa2\x38\x03new"
    yield Said(TASKS, b"job-odd", newer)


def _odd_statuses(at_ms: int) -> Iterator[Said]:
    """The latest of a job by what it says, then by where it is."""
    latest = JobStatus(job_id="job-tie", state=IN_PROGRESS, tenant="acme", timestamp_ms=at_ms + 5, log_offset=1)
    tied = JobStatus(job_id="job-tie", state=COMPLETED, tenant="acme", timestamp_ms=at_ms + 5, log_offset=2)
    early = JobStatus(job_id="job-tie", state=QUEUED, tenant="acme", timestamp_ms=at_ms, log_offset=3)
    for status in (latest, tied, early):
        yield Said(STATUS, b"job-tie", status.SerializeToString())
    yield Said(STATUS, b"job-old", JobStatus(job_id="job-old").SerializeToString())
    last = JobStatus(job_id="job-last", timestamp_ms=YEAR_10000_MS - 1, log_offset=(1 << 63) - 1)
    last.state = -1  # type: ignore[assignment]
    yield Said(STATUS, b"job-last", last.SerializeToString())


def _odd_logs(at_ms: int) -> Iterator[Said]:
    for size in ("", "12 bytes", "-5", "+7", " 8", "٣", "1e3", "9" * 18, "9" * 19, "007"):
        fields = {"step": "stored", "bytes": size, "tenant": "odd"}
        yield Said(LOGS, b"job-odd", JobLog(job_id="job-odd", fields=fields, timestamp_ms=at_ms).SerializeToString())
    for _ in range(15):  # together more than a column holds
        fields = {"step": "stored", "bytes": "9" * 18, "tenant": "liar"}
        yield Said(LOGS, b"job-odd", JobLog(job_id="job-odd", fields=fields, timestamp_ms=at_ms).SerializeToString())
    # Nothing but a beginning: minutes count it, days do not.
    alone = JobLog(job_id="job-odd", fields={"step": "started", "tenant": "lonely"}, timestamp_ms=at_ms)
    alone.level = 17  # type: ignore[assignment]
    yield Said(LOGS, b"job-odd", alone.SerializeToString())
    # A name twice in a map: the last is right.
    once = JobLog(job_id="job-odd", fields={"step": "stored", "bytes": "1"})
    again = JobLog(fields={"step": "failed", "tenant": "odd"})
    yield Said(LOGS, b"job-odd", once.SerializeToString() + again.SerializeToString())


def _odd_letters(at_ms: int) -> Iterator[Said]:
    """URLs of no host, and what a worker buries of a task that it could not read."""
    for url in ("", "img.example/no-scheme", "http://[::1", "https:///path", "HTTPS://[::1]/x", "http://h:port/x"):
        task = DownloadTask(job_id="job-odd", resource_id="r", url=url, tenant="odd")
        letter = DeadLetterTask(task=task, failure_code="DOWNLOAD_INVALID_URL", failed_at_ms=at_ms)
        yield Said(DLQ, b"job-odd", letter.SerializeToString())
    remains = DownloadTask(attributes=TaskAttributes(extra=b"\xff\xff"))
    letter = DeadLetterTask(task=remains, failure_code="SYSTEM_MALFORMED_TASK", failed_at_ms=at_ms)
    yield Said(DLQ, b"", letter.SerializeToString())
