"""The ledger's file, and what may be asked of it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

import msgspec

from slipstream.jobs.clock import now_ms
from slipstream.jobs.controls import Held
from slipstream.jobs.errors import InvalidJobs, JobsError
from slipstream.jobs.ledger import fold
from slipstream.jobs.ledger.schema import APPLICATION, SCHEMA, UPGRADES, VERSION
from slipstream.jobs.ledger.snapshot import JobSnapshot, Rank, ResourceSnapshot
from slipstream.jobs.ledger.telling import Told
from slipstream.jobs.messages import JobState, JobStatus
from slipstream.writer import Writer

P = ParamSpec("P")
T = TypeVar("T")

MEMORY = ":memory:"
BUSY_MS = 5_000
FORGET_JOBS = 20
"""At once."""


class LedgerUnavailable(JobsError):
    """The file cannot be read or written now."""


class LedgerInUse(JobsError):
    """Another process has it: there is one writer."""


class Submission(msgspec.Struct, frozen=True):
    """A job on its way in: how far the ingress has come with it."""

    job_id: str
    tenant: str
    job_type: str
    idempotency_key: str | None
    digest: bytes
    """Of the manifest as it was sent."""
    trace_id: str
    stage: str
    """`reserved`: it has an id; `queued`: its manifest is stored, and the job in the ledger; `published`."""
    resources: int
    created_ms: int


class Ledger:
    """Belongs to one event loop. Reads are done there and then, on a connection of their own, as they take
    microseconds; of writes there are many in one transaction, which a thread commits."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.id = ""
        """Of this file: what it tells on jobs.status carries it, so that it knows its own words again."""
        self.is_new = False
        self.words: fold.Words = lambda job_id: None
        """Returns the newest decision of operators about a job, for jobs that the ledger learns of after it."""
        self._lock = -1
        self._folder: str | None = None
        self._writer: Writer | None = None
        self._reads: sqlite3.Cursor

    async def open(self) -> None:
        """Raises LedgerInUse, LedgerUnavailable, or InvalidJobs for a file of something else."""
        if self.path == MEMORY:
            self._reads = self._connect(":memory:").cursor()
        else:
            self._take()
            try:
                writer = Writer(lambda: self._connect(self.path), self._translate, BUSY_MS)
                await writer.open()
                self._writer = writer
                self._reads = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False).cursor()
                self._reads.execute("PRAGMA query_only = ON")
            except BaseException:
                self._release()
                raise
        self.id = self._read("SELECT value FROM facts WHERE name = 'id'")[0][0]

    async def close(self) -> None:
        try:
            if self._writer is not None:
                await self._writer.close()
        finally:
            self._reads.connection.close()
            self._release()

    # What the ingress writes

    async def reserve(self, submission: Submission) -> Submission:
        """The one that has the key already, if there is one."""
        return await self._write(_reserve, submission)

    async def queue(self, job_id: str, job_type: str, tenant: str, manifest_key: str, resources: Sequence[str]) -> None:
        await self._write(fold.queue, job_id, job_type, tenant, manifest_key, resources, now_ms())

    async def published(self, job_id: str) -> None:
        await self._write(_published, job_id, now_ms())

    async def requeued(self, job_id: str) -> None:
        """Its tasks were published once more, now."""
        await self._write(_touch, job_id, now_ms())

    async def withdraw(self, job_id: str) -> None:
        """A job that was never queued."""
        await self._write(_withdraw, job_id)

    def stage(self, job_id: str) -> str:
        rows = self._read("SELECT stage FROM submissions WHERE job_id = ?", job_id)
        return rows[0][0] if rows else "reserved"

    def unpublished(self) -> list[Submission]:
        """Those that the ingress has begun, and not ended."""
        return [
            Submission(*row)
            for row in self._read(f"SELECT {_SUBMISSION} FROM submissions WHERE stage <> 'published' ORDER BY job_id")
        ]

    # What the operator writes

    async def fold_logs(
        self, topic: str, partition: int, heard: Sequence[Told], next_offset: int = -1
    ) -> list[JobSnapshot]:
        """Takes in logs, and how far they were read; returns the jobs that have changed."""
        return await self._write(fold.fold_logs, topic, partition, heard, next_offset, now_ms(), self.words)

    async def fold_status(self, status: JobStatus) -> JobSnapshot | None:
        told = {
            "job_id": status.job_id,
            "job_type": status.job_type,
            "tenant": status.tenant,
            "manifest_key": status.manifest_key,
            "resources_total": status.resources_total,
            "resources_completed": status.resources_completed,
            "resources_failed": status.resources_failed,
            "last_error_code": status.last_error_code,
            "last_error_message": status.last_error_message,
            "timestamp_ms": status.timestamp_ms,
            "is_begun": status.state not in {JobState.JOB_STATE_UNKNOWN, JobState.JOB_STATE_QUEUED},
        }
        return await self._write(fold.fold_status, told, now_ms(), self.words)

    async def fold_control(self, job_id: str, held: Held, at_ms: int) -> JobSnapshot | None:
        """Take in that a job was cancelled, paused or resumed; return it if that is news."""
        return await self._write(fold.fold_control, job_id, held, at_ms, now_ms())

    async def told(self, snapshots: Sequence[JobSnapshot]) -> None:
        """Their status has been published."""
        await self._write(_told, [(each.job_id, each.updated_ms) for each in snapshots])

    async def finalized(self, job_id: str) -> None:
        await self._write(_finalized, job_id)

    async def start_over(self) -> None:
        """All streams are to be read again."""
        await self._write(fold.start_over)

    async def dealt_with(self, places: Sequence[tuple[int, int]], became: Literal["replayed", "discarded"]) -> None:
        """Dead letters, by partition and offset."""
        await self._write(_dealt_with, list(places), became, now_ms())

    async def forget(self, keep_ms: int, keep_unended_ms: int | None = None) -> int:
        """Jobs that nothing has happened to for so long; those that have not ended, for the longer of the two. Returns
        how many there were."""
        total, now = 0, now_ms()
        longer_ms = keep_ms if keep_unended_ms is None else max(keep_ms, keep_unended_ms)
        while forgotten := await self._write(fold.forget, now - keep_ms, now - longer_ms, FORGET_JOBS):
            total += forgotten
        return total

    async def forget_job(self, job_id: str, before_ms: int) -> bool:
        """Unless something has happened to it since."""
        return await self._write(fold.forget_job, job_id, before_ms)

    # What anybody may ask

    def position(self, topic: str, partition: int) -> int:
        rows = self._read("SELECT next FROM positions WHERE topic = ? AND partition = ?", topic, partition)
        return rows[0][0] if rows else 0

    def job(self, job_id: str) -> JobSnapshot | None:
        rows = self._read(f"SELECT {fold.COLUMNS} FROM jobs WHERE job_id = ?", job_id)
        return fold.Row(*rows[0]).snapshot() if rows else None

    def jobs(
        self,
        *,
        state: str = "",
        tenant: str = "",
        job_type: str = "",
        limit: int = 100,
        before: tuple[int, str] | None = None,
    ) -> list[JobSnapshot]:
        """The newest first; those older than `before`, which is when one was created, and its id."""
        wanted = {"state = ?": state, "tenant = ?": tenant, "job_type = ?": job_type}
        conditions = [condition for condition, value in wanted.items() if value]
        values: list[Any] = [value for value in wanted.values() if value]
        if before is not None:
            conditions.append("(created_ms, job_id) < (?, ?)")
            values += before
        where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
        rows = self._read(
            f"SELECT {fold.COLUMNS} FROM jobs {where} ORDER BY created_ms DESC, job_id DESC LIMIT ?", *values, limit
        )
        return [fold.Row(*row).snapshot() for row in rows]

    def resources(self, job_id: str) -> list[ResourceSnapshot]:
        rows = self._read(
            "SELECT resource_id, rank, key, size, sha256, mime, error_code, error_message, attempts, updated_ms, "
            "storage FROM resources WHERE job_id = ? ORDER BY resource_id",
            job_id,
        )
        return [
            ResourceSnapshot(
                resource_id=row[0],
                state=Rank(row[1]).label,
                key=row[2],
                size=row[3],
                sha256=row[4],
                mime=row[5],
                error_code=row[6],
                error_message=row[7],
                attempts=row[8],
                updated_ms=row[9],
                storage=row[10],
            )
            for row in rows
        ]

    def rank(self, job_id: str, resource_id: str) -> Rank | None:
        rows = self._read("SELECT rank FROM resources WHERE job_id = ? AND resource_id = ?", job_id, resource_id)
        return Rank(rows[0][0]) if rows else None

    def is_shared(self, resource: ResourceSnapshot, job_id: str) -> bool:
        """Whether another job has stored something in the same place."""
        shared = (
            "SELECT 1 FROM resources WHERE key = ? AND key <> '' AND instr(key, job_id) = 0 "
            "AND storage = ? AND job_id <> ? LIMIT 1"
        )
        if self._read(shared, resource.key, resource.storage, job_id):
            return True
        # Where the key has the id of a job in it, that job is asked: there is no index of those.
        others = [part for part in resource.key.split("/") if part != job_id]
        own = "SELECT 1 FROM resources WHERE job_id = ? AND key = ? AND storage = ? LIMIT 1"
        return any(self._read(own, other, resource.key, resource.storage) for other in others)

    def idle(self, before_ms: int, unended_before_ms: int) -> list[JobSnapshot]:
        """Those that nothing has happened to since: that have ended, and that have not."""
        rows = self._read(
            f"SELECT {fold.COLUMNS} FROM jobs WHERE {fold.IDLE} ORDER BY updated_ms", before_ms, unended_before_ms
        )
        return [fold.Row(*row).snapshot() for row in rows]

    def unended(self, before_ms: int) -> list[tuple[str, int, int]]:
        """Return the jobs that have not ended and have not changed since: id, time of the last change, resources left.

        Only jobs whose tasks this ledger's ingress has published: when others publish theirs is not known.
        """
        rows = self._read(
            f"SELECT {fold.COLUMNS} FROM jobs WHERE state IN ('queued', 'in_progress', 'paused') AND updated_ms < ? "
            "AND max(declared, known) > 0 AND job_id IN (SELECT job_id FROM submissions WHERE stage = 'published')",
            before_ms,
        )
        return [(row.job_id, row.updated_ms, row.total - row.completed - row.failed) for row in map(_row, rows)]

    def held_ms(self, job_id: str) -> int:
        """Return when operators last cancelled, paused or resumed a job; -1 if they never did."""
        rows = self._read("SELECT held_ms FROM jobs WHERE job_id = ?", job_id)
        return rows[0][0] if rows else -1

    def submission(self, job_id: str) -> Submission | None:
        rows = self._read(f"SELECT {_SUBMISSION} FROM submissions WHERE job_id = ?", job_id)
        return Submission(*rows[0]) if rows else None

    def untold(self) -> list[JobSnapshot]:
        """Those whose status is to be published."""
        rows = self._read(f"SELECT {fold.COLUMNS} FROM jobs WHERE untold")
        return [fold.Row(*row).snapshot() for row in rows]

    def unfinalized(self) -> list[JobSnapshot]:
        """Those that have ended, and whose handler has not heard of it."""
        rows = self._read(f"SELECT {fold.COLUMNS} FROM jobs WHERE unfinalized")
        return [snapshot for row in rows if (snapshot := fold.Row(*row).snapshot()).is_ended]

    def became(self, partition: int, offset: int) -> str:
        """Of a dead letter: `replayed`, `discarded`, or nothing yet."""
        rows = self._read("SELECT became FROM letters WHERE partition = ? AND offset = ?", partition, offset)
        return rows[0][0] if rows else ""

    def counts(self) -> dict[str, int]:
        """How many jobs there are in each state."""
        return dict(self._read("SELECT state, count(*) FROM jobs GROUP BY state"))

    # The file

    def _take(self) -> None:
        try:
            Path(self.path).parent.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise LedgerUnavailable(f"the ledger {self.path} cannot be opened: {error}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._release()
            raise LedgerInUse(
                f"the ledger {self.path} is in use by another process: there is one service, which everybody asks; "
                "stop the other, or set JOBS_LEDGER to another file"
            ) from error

    def _release(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _connect(self, path: str) -> sqlite3.Connection:
        connection = sqlite3.connect(path, timeout=BUSY_MS / 1000, isolation_level=None, check_same_thread=False)
        try:
            self.is_new = not connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
            self._check(connection)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            if not self.is_new:
                _upgrade(connection)
            if self.is_new:
                connection.execute("BEGIN IMMEDIATE")
                for statement in SCHEMA:
                    connection.execute(statement)
                connection.execute("INSERT INTO facts VALUES ('id', ?)", (secrets.token_hex(8),))
                connection.execute("COMMIT")
        except BaseException:
            connection.close()
            raise
        return connection

    def _check(self, connection: sqlite3.Connection) -> None:
        if self.is_new:
            return
        if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
            raise InvalidJobs(f"{self.path} is a database of something else: set JOBS_LEDGER to another file")
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version > VERSION:
            raise InvalidJobs(
                f"{self.path} was written by a newer slipstream (its version is {version}, this one knows {VERSION}): "
                "upgrade slipstream, or move the file away: it is made anew from the streams"
            )

    def _translate(self, error: BaseException) -> BaseException:
        if type(error) is sqlite3.DatabaseError:
            return InvalidJobs(
                f"{self.path} is no database, or damaged ({error}): move it away, with those of its name that end in "
                "-wal and -shm; it is made anew from the streams"
            )
        if isinstance(error, sqlite3.Error | OSError):
            return LedgerUnavailable(f"{self.path}: {error}")
        return error

    def _read(self, statement: str, *values: Any) -> list[Any]:
        try:
            return self._reads.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise LedgerUnavailable(f"{self.path}: {error}") from error

    async def _write(
        self, operation: Callable[Concatenate[sqlite3.Cursor, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        if self._writer is not None:
            return await self._writer.ask(operation, *args, **kwargs)
        self._reads.execute("BEGIN")
        try:
            result = operation(self._reads, *args, **kwargs)
        except BaseException:
            self._reads.execute("ROLLBACK")
            raise
        self._reads.execute("COMMIT")
        return result


@contextlib.asynccontextmanager
async def open_ledger(path: str) -> AsyncIterator[Ledger]:
    """
    Example:
        async with open_ledger("slipstream-data/jobs.db") as ledger:
            print(ledger.jobs(state="failed"))
    """
    ledger = Ledger(path)
    await ledger.open()
    try:
        yield ledger
    finally:
        await ledger.close()


def _upgrade(connection: sqlite3.Connection) -> None:
    """Make the tables of an earlier version those of today."""
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    for former in range(version, VERSION):
        connection.execute("BEGIN IMMEDIATE")
        for statement in UPGRADES[former]:
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {former + 1}")
        connection.execute("COMMIT")


def _row(values: tuple[Any, ...]) -> fold.Row:
    return fold.Row(*values)


# The operations that are no folding

_SUBMISSION = "job_id, tenant, job_type, idempotency_key, digest, trace_id, stage, resources, created_ms"


def _reserve(cursor: sqlite3.Cursor, submission: Submission) -> Submission:
    if submission.idempotency_key is not None:
        found = cursor.execute(
            f"SELECT {_SUBMISSION} FROM submissions WHERE tenant = ? AND job_type = ? AND idempotency_key = ?",
            (submission.tenant, submission.job_type, submission.idempotency_key),
        ).fetchone()
        if found is not None:
            return Submission(*found)
    places = ", ".join("?" * len(submission.__struct_fields__))
    cursor.execute(f"INSERT INTO submissions ({_SUBMISSION}) VALUES ({places})", msgspec.structs.astuple(submission))
    return submission


def _published(cursor: sqlite3.Cursor, job_id: str, at_ms: int) -> None:
    """A job whose tasks were published long after it was queued is not older than they are."""
    cursor.execute("UPDATE submissions SET stage = 'published' WHERE job_id = ?", (job_id,))
    cursor.execute("UPDATE jobs SET updated_ms = max(updated_ms, ?) WHERE job_id = ? AND untold = 0", (at_ms, job_id))


def _touch(cursor: sqlite3.Cursor, job_id: str, at_ms: int) -> None:
    cursor.execute("UPDATE jobs SET updated_ms = max(updated_ms + 1, ?), untold = 1 WHERE job_id = ?", (at_ms, job_id))


def _withdraw(cursor: sqlite3.Cursor, job_id: str) -> None:
    cursor.execute("DELETE FROM submissions WHERE job_id = ? AND stage = 'reserved'", (job_id,))


def _told(cursor: sqlite3.Cursor, told: list[tuple[str, int]]) -> None:
    """Unless more has happened since."""
    cursor.executemany("UPDATE jobs SET untold = 0 WHERE job_id = ? AND updated_ms <= ?", told)


def _finalized(cursor: sqlite3.Cursor, job_id: str) -> None:
    cursor.execute("UPDATE jobs SET unfinalized = 0 WHERE job_id = ?", (job_id,))


def _dealt_with(cursor: sqlite3.Cursor, places: list[tuple[int, int]], became: str, at_ms: int) -> None:
    cursor.executemany("REPLACE INTO letters VALUES (?, ?, ?, ?)", [(*place, became, at_ms) for place in places])
