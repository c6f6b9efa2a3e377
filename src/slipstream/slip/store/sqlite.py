"""A store in one file, which all processes of a machine may use at once; or in memory, for one process."""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from slipstream.slip.store.store import StoreClosed, StoreUnavailable, Timer, Tracked, UnusableStore
from slipstream.slip.store.summary import Summary, decode_summary, encode_summary, summary_of
from slipstream.writer import TOGETHER, Writer

P = ParamSpec("P")
T = TypeVar("T")

MEMORY = ":memory:"
VERSION = 1
APPLICATION = int.from_bytes(b"slip", "big")
"""In the header of the file, where SQLite has a place for it."""

BUSY_MS = 5_000
"""So long a write waits for those of other processes."""
READ_BUSY_MS = 1_000
"""A read waits for nobody, except while what a killed process left is looked through; the event loop waits with it."""
LOCKED_PAUSE_S = 0.01
STATEMENTS = 512
"""Kept prepared: there is one for every number of claims that are written together."""
PURGE_S = 0.1
PURGE_FACTS = 100
PURGE_SLIPS = 10
"""At once, so that a purge does not keep others waiting."""

END_STATE = "json_extract(CAST(summary AS TEXT), '$.end.state')"
BY_END_STATE = f"CREATE INDEX IF NOT EXISTS slips_by_end_state ON slips ({END_STATE}, moved_ms) WHERE ended = 1"
"""An index on an expression: versions that do not know it keep it up to date all the same."""
KNOWN_AT_ONCE = 500
"""Number of slips in one statement."""

# Values of about 1 KB are kept next to no key: a b-tree whose rows are keys (WITHOUT ROWID) would put each of them on a
# page of its own, as they are larger than a quarter of a page.
SCHEMA = (
    """CREATE TABLE facts (
        record TEXT NOT NULL, name TEXT NOT NULL, value BLOB NOT NULL, expires_ms INTEGER NOT NULL)""",
    "CREATE UNIQUE INDEX facts_by_name ON facts (record, name)",
    "CREATE INDEX facts_by_expiry ON facts (expires_ms)",
    """CREATE TABLE timers (
        queue TEXT NOT NULL, id TEXT NOT NULL, due_ms INTEGER NOT NULL, value BLOB NOT NULL)""",
    "CREATE UNIQUE INDEX timers_by_id ON timers (queue, id)",
    "CREATE INDEX timers_by_time ON timers (queue, due_ms)",
    """CREATE TABLE progress (
        number INTEGER PRIMARY KEY, slip TEXT NOT NULL, digest BLOB NOT NULL, at_ms INTEGER NOT NULL,
        value BLOB NOT NULL)""",
    "CREATE UNIQUE INDEX progress_by_digest ON progress (slip, digest)",
    """CREATE TABLE slips (
        slip TEXT PRIMARY KEY, moved_ms INTEGER NOT NULL, ended INTEGER NOT NULL, expires_ms INTEGER NOT NULL,
        summary BLOB NOT NULL) WITHOUT ROWID""",
    "CREATE INDEX slips_by_time ON slips (moved_ms)",
    "CREATE INDEX slips_by_end ON slips (ended, moved_ms)",
    "CREATE INDEX slips_by_expiry ON slips (expires_ms)",
    BY_END_STATE,
    f"PRAGMA user_version = {VERSION}",
    f"PRAGMA application_id = {APPLICATION}",
)


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class SqliteStore:
    """Belongs to one event loop. Reads are done there and then, on a connection of their own, as they take
    microseconds; of writes there are many in one transaction, which a thread commits (`writer`).

    Example:
        store = SqliteStore("data/slips.db")
        await store.open()
    """

    def __init__(self, path: str | Path, *, busy_ms: int = BUSY_MS, now_ms: Callable[[], int] = wall_clock_ms) -> None:
        self.path = str(path)
        self._busy_ms = busy_ms
        self._now_ms = now_ms
        self._writer: Writer | None = None
        self._reads: sqlite3.Cursor | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"<SqliteStore {self.path}>"

    async def open(self) -> None:
        """Raises UnusableStore if the file is something else, StoreUnavailable if it cannot be opened now."""
        if self._closed or self._reads is not None or self._writer is not None:
            raise StoreClosed(f"{self.path}: this store was opened before: make another")
        if self.path == MEMORY:
            self._reads = self._connect().cursor()
            return
        self._writer = writer = Writer(self._connect, self._translate, self._busy_ms)
        try:
            await writer.open()
            self._reads = self._connect_to_read().cursor()
        except BaseException:
            self._writer = None  # it may be tried again
            await writer.close()
            raise

    async def close(self) -> None:
        """Finishes what was asked for."""
        self._closed = True
        reads, self._reads = self._reads, None
        try:
            if self._writer is not None:
                await self._writer.close()
        finally:
            if reads is not None:
                reads.connection.close()

    async def claim(self, record: str, name: str, value: bytes, *, ttl_ms: int) -> bytes:
        assert ttl_ms > 0
        now_ms = self._now_ms()
        return await self._write(_claim, record, name, value, now_ms, now_ms + ttl_ms)

    async def put(self, record: str, name: str, value: bytes, *, ttl_ms: int) -> None:
        assert ttl_ms > 0
        await self._write(_put, record, name, value, self._now_ms() + ttl_ms)

    async def get(self, record: str, name: str) -> bytes | None:
        rows = self._read(
            "SELECT value FROM facts WHERE record = ? AND name = ? AND expires_ms > ?", record, name, self._now_ms()
        )
        return rows[0][0] if rows else None

    async def get_two(self, record: str, first: str, second: str) -> tuple[bytes | None, bytes | None]:
        rows = self._read(
            "SELECT name, value FROM facts WHERE record = ? AND name IN (?, ?) AND expires_ms > ?",
            record,
            first,
            second,
            self._now_ms(),
        )
        found = dict(rows)
        return found.get(first), found.get(second)

    async def facts(self, record: str, prefix: str = "") -> dict[str, bytes]:
        rows = self._read(
            "SELECT name, value FROM facts WHERE record = ? AND expires_ms > ? ORDER BY name", record, self._now_ms()
        )
        return {name: value for name, value in rows if name.startswith(prefix)}

    async def remove(self, record: str, *names: str) -> None:
        await self._write(_remove, record, names)

    async def schedule(self, queue: str, timer: Timer) -> None:
        await self._write(_schedule, queue, timer)

    async def unschedule(self, queue: str, timer_id: str, *, due_ms: int | None = None) -> None:
        await self._write(_unschedule, queue, timer_id, due_ms)

    async def due(self, queue: str, now_ms: int, *, limit: int, lease_ms: int) -> list[Timer]:
        if not self._read("SELECT 1 FROM timers WHERE queue = ? AND due_ms <= ? LIMIT 1", queue, now_ms):
            return []  # which is nearly always so, and no reason to write
        return await self._write(_due, queue, now_ms, limit, lease_ms)

    async def track(
        self, slip: str, progress: bytes, *, at_ms: int, kind: str, step: str, state: str, ended: bool, ttl_ms: int
    ) -> None:
        heard = summary_of(at_ms=at_ms, kind=kind, step=step, state=state, ended=ended, ttl_ms=ttl_ms)
        digest = hashlib.blake2b(progress, digest_size=16).digest()
        await self._write(_track, slip, progress, digest, at_ms, heard)

    async def history(self, slip: str) -> list[bytes]:
        rows = self._read("SELECT value FROM progress WHERE slip = ? ORDER BY at_ms, number", slip)
        return [value for (value,) in rows]

    async def tracked(
        self,
        *,
        ended: bool | None = None,
        end_state: str = "",
        moved_before_ms: int | None = None,
        limit: int = 100,
    ) -> list[Tracked]:
        conditions: list[str] = []
        parameters: list[int | str] = []
        if end_state:
            conditions.append(f"ended = 1 AND {END_STATE} = ?")
            parameters.append(end_state)
        if ended is not None:
            conditions.append("ended = ?")
            parameters.append(ended)
        if moved_before_ms is not None:
            conditions.append("moved_ms < ?")
            parameters.append(moved_before_ms)
        where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
        order = "DESC" if moved_before_ms is None else "ASC"
        rows = self._read(
            f"SELECT slip, summary FROM slips {where} ORDER BY moved_ms {order} LIMIT ?", *parameters, limit
        )
        return [decode_summary(summary).tracked(slip) for slip, summary in rows]

    async def known(self, slips: Sequence[str]) -> set[str]:
        found: set[str] = set()
        for first in range(0, len(slips), KNOWN_AT_ONCE):
            asked = slips[first : first + KNOWN_AT_ONCE]
            places = ", ".join("?" * len(asked))
            found |= {slip for (slip,) in self._read(f"SELECT slip FROM slips WHERE slip IN ({places})", *asked)}
        return found

    async def purge(self, now_ms: int) -> int:
        until = time.monotonic() + PURGE_S
        count = 0
        while purged := await self._write(_purge, now_ms):
            count += purged
            if time.monotonic() >= until:
                break
        return count

    # How

    def _read(self, statement: str, *parameters: object) -> list[Any]:
        if self._reads is None:
            raise self._not_open()
        try:
            return self._reads.execute(statement, parameters).fetchall()
        except sqlite3.Error as error:
            raise self._translate(error) from error

    def _write(
        self, operation: Callable[Concatenate[sqlite3.Cursor, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> asyncio.Future[T]:
        if self._reads is None:
            raise self._not_open()
        if self._writer is not None:
            return self._writer.ask(operation, *args, **kwargs)
        # In memory nothing is waited for: a thread would only make it slower, and reads wait for it.
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        with self._reads.connection:
            self._reads.execute("BEGIN")
            done.set_result(operation(self._reads, *args, **kwargs))
        return done

    def _not_open(self) -> StoreClosed:
        return StoreClosed(f"{self.path}: this store is {'closed' if self._closed else 'not open yet: await open()'}")

    def _connect(self) -> sqlite3.Connection:
        """The connection that writes."""
        if self.path != MEMORY:
            if Path(self.path).is_dir():
                raise UnusableStore(f"{self.path} is a directory: name a file in it")
            Path(self.path).parent.mkdir(parents=True, exist_ok=True)
        connection = _connect(self.path, self._busy_ms)
        try:
            self._is_new(connection)  # what is somebody else's is left as it is
            self._use_wal(connection)
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _connect_to_read(self) -> sqlite3.Connection:
        try:
            connection = _connect(self.path, READ_BUSY_MS)
            connection.execute("PRAGMA query_only = ON")
        except sqlite3.Error as error:
            raise self._translate(error) from error
        return connection

    def _use_wal(self, connection: sqlite3.Connection) -> None:
        """Several that open a new file at once are in each other's way here, and SQLite does not wait by itself."""
        until = time.monotonic() + self._busy_ms / 1000
        while True:
            try:
                connection.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                if not _is_busy(error) or time.monotonic() >= until:
                    raise
                time.sleep(LOCKED_PAUSE_S)
            else:
                return

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """Makes the tables, unless somebody has, perhaps just now."""
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("BEGIN IMMEDIATE")
        if self._is_new(connection):
            for statement in SCHEMA:
                connection.execute(statement)
        connection.execute(BY_END_STATE)  # files of earlier versions have none
        connection.execute("COMMIT")

    def _is_new(self, connection: sqlite3.Connection) -> bool:
        """Raises UnusableStore if there is something in it that is not for us."""
        if not connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall():
            return True
        if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
            raise UnusableStore(f"{self.path} is a database of something else: name another file")
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version > VERSION:
            raise UnusableStore(
                f"{self.path} was written by a newer slipstream (its version is {version}, this one knows {VERSION}): "
                "upgrade slipstream, or name another file"
            )
        return False

    def _translate(self, error: BaseException) -> BaseException:
        """What went wrong with the file, in terms of the store; anything else as it is."""
        if type(error) is sqlite3.DatabaseError:
            return UnusableStore(
                f"{self.path} is no database, or damaged ({error}): name another file; or move it away, with those of "
                "its name that end in -wal and -shm, and start anew or from a copy"
            )
        if isinstance(error, sqlite3.OperationalError) and _is_busy(error):
            return StoreUnavailable(f"{self.path}: another process kept it locked for more than {self._busy_ms} ms")
        if isinstance(error, sqlite3.OperationalError | OSError):
            return StoreUnavailable(f"{self.path}: {error}")
        return error


def _connect(path: str, busy_ms: int) -> sqlite3.Connection:
    return sqlite3.connect(
        path, timeout=busy_ms / 1000, isolation_level=None, check_same_thread=False, cached_statements=STATEMENTS
    )


def _is_busy(error: sqlite3.OperationalError) -> bool:
    # Its lower byte: there are several ways to be busy. Python itself raises some without a code.
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY


# The operations


def _claim(cursor: sqlite3.Cursor, record: str, name: str, value: bytes, now_ms: int, expires_ms: int) -> bytes:
    cursor.execute("INSERT OR IGNORE INTO facts VALUES (?, ?, ?, ?)", (record, name, value, expires_ms))
    if cursor.rowcount:
        return value  # nearly always
    kept: bytes
    kept, kept_until_ms = cursor.execute(
        "SELECT value, expires_ms FROM facts WHERE record = ? AND name = ?", (record, name)
    ).fetchone()
    if kept_until_ms > now_ms:
        return kept
    _put(cursor, record, name, value, expires_ms)
    return value


def _claim_together(cursor: sqlite3.Cursor, asked: list[tuple[Any, ...]]) -> list[bytes] | None:
    rows = [(record, name, value, expires_ms) for record, name, value, _, expires_ms in asked]
    places = ", ".join(["(?, ?, ?, ?)"] * len(rows))
    cursor.execute(f"INSERT OR IGNORE INTO facts VALUES {places}", [value for row in rows for value in row])
    # Those that are there by now have the value that they claim: they may be claimed again.
    return [row[2] for row in rows] if cursor.rowcount == len(rows) else None


TOGETHER[_claim] = _claim_together


def _put(cursor: sqlite3.Cursor, record: str, name: str, value: bytes, expires_ms: int) -> None:
    cursor.execute(
        "INSERT INTO facts VALUES (?, ?, ?, ?) ON CONFLICT (record, name) DO UPDATE "
        "SET value = excluded.value, expires_ms = excluded.expires_ms",
        (record, name, value, expires_ms),
    )


def _remove(cursor: sqlite3.Cursor, record: str, names: tuple[str, ...]) -> None:
    cursor.executemany("DELETE FROM facts WHERE record = ? AND name = ?", [(record, name) for name in names])


def _schedule(cursor: sqlite3.Cursor, queue: str, timer: Timer) -> None:
    cursor.execute(
        "INSERT INTO timers VALUES (?, ?, ?, ?) ON CONFLICT (queue, id) DO UPDATE "
        "SET due_ms = excluded.due_ms, value = excluded.value",
        (queue, timer.id, timer.due_ms, timer.value),
    )


def _unschedule(cursor: sqlite3.Cursor, queue: str, timer_id: str, due_ms: int | None) -> None:
    cursor.execute(
        "DELETE FROM timers WHERE queue = ?1 AND id = ?2 AND (?3 IS NULL OR due_ms = ?3)", (queue, timer_id, due_ms)
    )


def _due(cursor: sqlite3.Cursor, queue: str, now_ms: int, limit: int, lease_ms: int) -> list[Timer]:
    rows = cursor.execute(
        "SELECT rowid, id, value FROM timers WHERE queue = ? AND due_ms <= ? ORDER BY due_ms LIMIT ?",
        (queue, now_ms, limit),
    ).fetchall()
    put_off_ms = now_ms + lease_ms
    cursor.executemany("UPDATE timers SET due_ms = ? WHERE rowid = ?", [(put_off_ms, row[0]) for row in rows])
    return [Timer(timer_id, put_off_ms, value) for _, timer_id, value in rows]


def _track(cursor: sqlite3.Cursor, slip: str, progress: bytes, digest: bytes, at_ms: int, heard: Summary) -> None:
    cursor.execute(
        "INSERT OR IGNORE INTO progress (slip, digest, at_ms, value) VALUES (?, ?, ?, ?)",
        (slip, digest, at_ms, progress),
    )
    if not cursor.rowcount:
        return
    known = cursor.execute("SELECT summary FROM slips WHERE slip = ?", (slip,)).fetchone()
    summary = decode_summary(known[0]).and_then(heard) if known else heard
    cursor.execute(
        "REPLACE INTO slips (slip, moved_ms, ended, expires_ms, summary) VALUES (?, ?, ?, ?, ?)",
        (slip, summary.moved_ms, summary.ended, summary.expires_ms, encode_summary(summary)),
    )


def _purge(cursor: sqlite3.Cursor, now_ms: int) -> int:
    """Some of it: those asked for meanwhile get their turn in between."""
    cursor.execute(
        "DELETE FROM facts WHERE rowid IN (SELECT rowid FROM facts WHERE expires_ms <= ? LIMIT ?)",
        (now_ms, PURGE_FACTS),
    )
    facts = cursor.rowcount
    slips = cursor.execute("SELECT slip FROM slips WHERE expires_ms <= ? LIMIT ?", (now_ms, PURGE_SLIPS)).fetchall()
    cursor.executemany("DELETE FROM progress WHERE slip = ?", slips)
    cursor.executemany("DELETE FROM slips WHERE slip = ?", slips)
    return facts + len(slips)
