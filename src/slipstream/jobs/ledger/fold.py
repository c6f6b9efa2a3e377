"""How the ledger takes in what it is told: functions of the database alone, many of them in one transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import msgspec
from msgspec.structs import replace

from slipstream.jobs.clock import CLOCKS_DIFFER_MS
from slipstream.jobs.controls import Held, Word
from slipstream.jobs.job_id import made_at_ms
from slipstream.jobs.ledger.snapshot import ENDED, JobSnapshot, Rank, State, state_of
from slipstream.jobs.ledger.telling import NUMBER_MAX, Told, number_in

COLUMNS = (
    "job_id, job_type, tenant, manifest_key, declared, known, begun, counted_completed, counted_failed, "
    "told_ms, told_completed, told_failed, error_code, error_message, error_ms, log_partition, log_offset, "
    "created_ms, updated_ms, state, untold, unfinalized, held, held_ms, bytes"
)

Words: TypeAlias = Callable[[str], Word | None]
"""Returns the newest decision of operators about a job."""
TEXT_CHARS_MAX = 1_000
"""Of whatever others say: anybody may publish, and a message has megabytes."""


class Row(msgspec.Struct, gc=False):
    """A job as its row has it."""

    job_id: str
    job_type: str = ""
    tenant: str = ""
    manifest_key: str = ""
    declared: int = 0
    """How many resources somebody said there are."""
    known: int = 0
    """How many were heard of."""
    begun: int = 0
    counted_completed: int = 0
    counted_failed: int = 0
    told_ms: int = -1
    told_completed: int = 0
    told_failed: int = 0
    error_code: str = ""
    error_message: str = ""
    error_ms: int = 0
    log_partition: int = 0
    log_offset: int = -1
    created_ms: int = 0
    updated_ms: int = 0
    state: State = "queued"
    untold: int = 0
    unfinalized: int = 0
    held: Held = ""
    """Whether operators have cancelled or paused it."""
    held_ms: int = -1
    """When they last said so."""
    bytes: int = 0
    """Size of the resources that were stored."""

    @property
    def total(self) -> int:
        return max(self.declared, self.known)

    @property
    def completed(self) -> int:
        """Counted here, or elsewhere by those who tell it: what was missed here was not missed there."""
        return max(self.counted_completed, min(self.told_completed, self.total))

    @property
    def failed(self) -> int:
        return min(max(self.counted_failed, self.told_failed), self.total - self.completed)

    def snapshot(self) -> JobSnapshot:
        return JobSnapshot(
            job_id=self.job_id,
            job_type=self.job_type,
            tenant=self.tenant,
            state=self.state,
            resources_total=self.total,
            resources_completed=self.completed,
            resources_failed=self.failed,
            manifest_key=self.manifest_key,
            last_error_code=self.error_code if self.failed else "",  # what a replay has mended is no error any more
            last_error_message=self.error_message if self.failed else "",
            log_offset=self.log_offset,
            log_partition=self.log_partition,
            created_ms=self.created_ms,
            updated_ms=self.updated_ms,
            bytes_stored=self.bytes,
        )


def load(cursor: sqlite3.Cursor, job_id: str) -> Row | None:
    found = cursor.execute(f"SELECT {COLUMNS} FROM jobs WHERE job_id = ?", (job_id,)).fetchone()
    return None if found is None else Row(*found)


def save(cursor: sqlite3.Cursor, row: Row) -> None:
    """With the state that follows from its numbers."""
    state = state_of(row.total, row.completed, row.failed, begun=bool(row.begun))
    if row.held and state not in ENDED:
        state = row.held
    if state != row.state and state in ENDED:
        row.unfinalized = 1
    row.state = state
    places = ", ".join("?" * len(row.__struct_fields__))
    cursor.execute(f"REPLACE INTO jobs ({COLUMNS}) VALUES ({places})", msgspec.structs.astuple(row))


def queue(
    cursor: sqlite3.Cursor,
    job_id: str,
    job_type: str,
    tenant: str,
    manifest_key: str,
    resources: Sequence[str],
    now_ms: int,
) -> None:
    """The ingress has taken it on."""
    # As its id says, and not as the clock does: a ledger that is made anew has only the id.
    row = load(cursor, job_id) or Row(job_id, created_ms=made_at_ms(job_id) or now_ms, updated_ms=now_ms)
    row.job_type, row.tenant, row.manifest_key = job_type, tenant, manifest_key
    row.declared = max(row.declared, len(resources))
    cursor.executemany(
        "INSERT OR IGNORE INTO resources (job_id, resource_id, rank, updated_ms) VALUES (?, ?, 0, ?)",
        [(job_id, resource, now_ms) for resource in resources],
    )
    row.known = _count_known(cursor, job_id)
    save(cursor, row)
    cursor.execute("UPDATE submissions SET stage = 'queued' WHERE job_id = ? AND stage = 'reserved'", (job_id,))


def fold_control(cursor: sqlite3.Cursor, job_id: str, held: Held, at_ms: int, now_ms: int) -> JobSnapshot | None:
    """Take in a decision of operators about a job; return None if a newer one, or the same, is known, or the job is
    not. Decisions are kept for longer than jobs: a row that is made for one would bring back a job without resources.
    """
    row = load(cursor, job_id)
    if row is None or at_ms <= row.held_ms:
        return None
    row.held, row.held_ms = held, at_ms
    row.untold, row.updated_ms = 1, max(now_ms, row.updated_ms + 1)
    save(cursor, row)
    return row.snapshot()


def _made(words: Words, job_id: str, created_ms: int, updated_ms: int) -> Row:
    """Return a row for a job that is new to the ledger, with the decision that operators have made about it before."""
    row = Row(job_id, created_ms=made_at_ms(job_id) or created_ms, updated_ms=updated_ms)
    if (word := words(job_id)) is not None:
        row.held, row.held_ms = word.held, word.at_ms
    return row


def fold_logs(
    cursor: sqlite3.Cursor,
    topic: str,
    partition: int,
    heard: Iterable[Told],
    next_offset: int,
    now_ms: int,
    words: Words,
) -> list[JobSnapshot]:
    """Returns the jobs that have changed. How far was read is noted with it; not where `next_offset` is -1."""
    latest_ms = now_ms + CLOCKS_DIFFER_MS
    by_job: dict[str, list[Told]] = {}
    for told in heard:
        of_job = by_job.setdefault(told.job_id, [])
        of_job.append(told if told.at_ms <= latest_ms else replace(told, at_ms=latest_ms))
    changed = []
    for job_id, of_job in by_job.items():
        # One without a row did not come by the ingress, or its QUEUED is still on its way.
        row = load(cursor, job_id) or _made(words, job_id, of_job[0].at_ms or now_ms, now_ms)
        is_first = row.log_offset < 0 and of_job[0].offset >= 0
        if is_first:
            row.log_offset, row.log_partition = of_job[0].offset, partition
        if _fold_job(cursor, row, of_job) or is_first:
            row.untold, row.updated_ms = 1, max(now_ms, row.updated_ms + 1)
            save(cursor, row)
            changed.append(row.snapshot())
    if next_offset >= 0:
        cursor.execute("REPLACE INTO positions VALUES (?, ?, ?)", (topic, partition, next_offset))
    return changed


def _fold_job(cursor: sqlite3.Cursor, row: Row, heard: list[Told]) -> bool:
    """Whether any of it was news. One statement reads what is known of the resources, one writes it, however many."""
    ids = list({told.resource_id for told in heard})
    # Not as JSON: SQLite ends a text in it at the first NUL, and two ids would become one.
    known: dict[str, _Resource] = {
        values[1]: values
        for values in cursor.execute(
            f"SELECT {RESOURCE} FROM resources WHERE job_id = ? AND resource_id IN ({', '.join('?' * len(ids))})",
            (row.job_id, *ids),
        )
    }
    is_ours = _is_ours(cursor, row.job_id)
    news: dict[str, _Resource] = {}
    is_news = False
    for told in heard:
        before = known.get(told.resource_id)
        if before is None and is_ours:
            continue  # the ingress knows what it consists of
        is_news |= _note(row, told)
        now = _resource(row.job_id, told)
        if before is None or _order(now) > _order(before):
            _count(row, told, -1 if before is None else before[2])
            row.bytes = max(0, min(row.bytes + now[4] - (0 if before is None else before[4]), NUMBER_MAX))
            known[told.resource_id] = news[told.resource_id] = now
    cursor.executemany(
        f"REPLACE INTO resources ({RESOURCE}) VALUES ({', '.join('?' * len(RESOURCE.split(', ')))})", news.values()
    )
    return is_news or bool(news)


def _is_ours(cursor: sqlite3.Cursor, job_id: str) -> bool:
    """The ingress of this ledger has taken it on: what it consists of is known, and its end is counted here."""
    found = cursor.execute("SELECT 1 FROM submissions WHERE job_id = ? AND stage <> 'reserved'", (job_id,)).fetchone()
    return found is not None


def _note(row: Row, told: Told) -> bool:
    """What is said of the job besides its numbers. Whether it is news."""
    fields = told.fields
    if not row.job_type and fields.get("job_type"):
        row.job_type, row.tenant = _short(fields["job_type"]), _short(fields.get("tenant"))
        row.manifest_key = _short(fields.get("manifest_key"))
    if told.rank != Rank.FAILED:
        return False
    error = (told.at_ms, _short(fields.get("code")), _short(told.message))
    if error <= (row.error_ms, row.error_code, row.error_message):
        return False
    row.error_ms, row.error_code, row.error_message = error
    return True


def _count(row: Row, told: Told, before: int) -> None:
    row.known += before < 0
    row.begun = 1
    row.counted_failed += (told.rank == Rank.FAILED) - (before == Rank.FAILED)
    row.counted_completed += (told.rank == Rank.COMPLETED) - (before == Rank.COMPLETED)
    if told.rank == Rank.COMPLETED and row.told_failed and before == Rank.FAILED:
        row.told_failed -= 1  # a replay: what was told before it no longer holds


_Resource: TypeAlias = tuple[Any, ...]
RESOURCE = (
    "job_id, resource_id, rank, key, size, sha256, mime, error_code, error_message, attempts, updated_ms, storage"
)


def _resource(job_id: str, told: Told) -> _Resource:
    if told.rank < Rank.FAILED:
        return (job_id, told.resource_id, int(told.rank), "", 0, "", "", "", "", 0, told.at_ms, "")
    get = told.fields.get
    return (
        job_id,
        told.resource_id,
        int(told.rank),
        _short(get("key")),
        number_in(told.fields, "bytes"),
        _short(get("sha256")),
        _short(get("mime")),
        _short(get("code")),
        _short(told.message) if told.rank == Rank.FAILED else "",
        number_in(told.fields, "attempts"),
        told.at_ms,
        _short(get("storage")),
    )


def _order(resource: _Resource) -> tuple[Any, ...]:
    """The greatest of all that was heard is what holds, in whichever order it came: the rank first, then the newest of
    those that have the same end. That it was started again is no news."""
    rank, updated_ms = resource[2], resource[10]
    return (rank, updated_ms, resource) if rank >= Rank.FAILED else (rank,)


def fold_status(cursor: sqlite3.Cursor, status: dict[str, Any], now_ms: int, words: Words) -> JobSnapshot | None:
    """What somebody says of a job on jobs.status: of numbers the newest count. None if it is no news."""
    if _is_ours(cursor, status["job_id"]):
        return None
    at_ms = min(status["timestamp_ms"], now_ms + CLOCKS_DIFFER_MS)
    found = load(cursor, status["job_id"])
    row = found or _made(words, status["job_id"], at_ms or now_ms, at_ms or now_ms)
    before = _said(row)
    row.job_type = row.job_type or _short(status["job_type"])
    row.tenant = row.tenant or _short(status["tenant"])
    row.manifest_key = row.manifest_key or _short(status["manifest_key"])
    row.declared = max(row.declared, status["resources_total"])
    completed, failed = status["resources_completed"], status["resources_failed"]
    # Of two in the same millisecond the one that is further on is the later.
    if (at_ms, completed + failed) > (row.told_ms, row.told_completed + row.told_failed):
        row.told_ms, row.told_completed, row.told_failed = at_ms, completed, failed
    if status["is_begun"]:
        row.begun = 1
    if status["last_error_code"] and at_ms >= row.error_ms:
        row.error_code, row.error_message = _short(status["last_error_code"]), _short(status["last_error_message"])
        row.error_ms = at_ms
    row.updated_ms = max(row.updated_ms, at_ms)
    save(cursor, row)
    return row.snapshot() if found is None or _said(row) != before else None


def _said(row: Row) -> tuple[Any, ...]:
    """What a JobStatus of it would say, but for when."""
    snapshot = row.snapshot()
    return msgspec.structs.astuple(msgspec.structs.replace(snapshot, updated_ms=0))


IDLE = "updated_ms < ? AND (state IN ('partial', 'completed', 'failed', 'cancelled') OR updated_ms < ?)"
"""Jobs that nothing has happened to since: those that have ended, and those that have not."""


def forget(cursor: sqlite3.Cursor, before_ms: int, unended_before_ms: int, limit: int) -> int:
    """Some of the jobs that nothing has happened to for long: those who ask meanwhile get their turn in between."""
    idle = cursor.execute(f"SELECT job_id FROM jobs WHERE {IDLE} LIMIT ?", (before_ms, unended_before_ms, limit))
    jobs = idle.fetchall()
    _remove(cursor, jobs)
    # What was reserved and never taken on, and nobody came back for.
    cursor.execute("DELETE FROM submissions WHERE stage = 'reserved' AND created_ms < ?", (before_ms,))
    cursor.execute("DELETE FROM letters WHERE at_ms < ?", (before_ms,))
    return len(jobs)


def forget_job(cursor: sqlite3.Cursor, job_id: str, before_ms: int) -> bool:
    """Unless something has happened to it since."""
    jobs = cursor.execute("SELECT job_id FROM jobs WHERE job_id = ? AND updated_ms < ?", (job_id, before_ms)).fetchall()
    _remove(cursor, jobs)
    return bool(jobs)


def _remove(cursor: sqlite3.Cursor, jobs: list[tuple[str]]) -> None:
    for table in ("resources", "submissions", "jobs"):
        cursor.executemany(f"DELETE FROM {table} WHERE job_id = ?", jobs)


def start_over(cursor: sqlite3.Cursor) -> None:
    """Read the streams again from their beginnings. What is known stays: to hear it again changes nothing."""
    cursor.execute("DELETE FROM positions")


def _count_known(cursor: sqlite3.Cursor, job_id: str) -> int:
    count: int = cursor.execute("SELECT count(*) FROM resources WHERE job_id = ?", (job_id,)).fetchone()[0]
    return count


def _short(text: str | None) -> str:
    return text[:TEXT_CHARS_MAX] if text else ""
