"""The tables of the ledger's file."""

from __future__ import annotations

VERSION = 3
APPLICATION = int.from_bytes(b"jobs", "big")
"""In the header of the file, where SQLite has a place for it."""

SCHEMA = (
    # counted_*: by the resources below, whose state was told; told_*: what others say of the job on jobs.status.
    """CREATE TABLE jobs (
        job_id TEXT PRIMARY KEY, job_type TEXT NOT NULL, tenant TEXT NOT NULL, manifest_key TEXT NOT NULL,
        state TEXT NOT NULL, declared INTEGER NOT NULL DEFAULT 0, known INTEGER NOT NULL DEFAULT 0,
        begun INTEGER NOT NULL DEFAULT 0, counted_completed INTEGER NOT NULL DEFAULT 0,
        counted_failed INTEGER NOT NULL DEFAULT 0, told_ms INTEGER NOT NULL DEFAULT -1,
        told_completed INTEGER NOT NULL DEFAULT 0, told_failed INTEGER NOT NULL DEFAULT 0,
        error_code TEXT NOT NULL DEFAULT '', error_message TEXT NOT NULL DEFAULT '',
        error_ms INTEGER NOT NULL DEFAULT 0,
        log_partition INTEGER NOT NULL DEFAULT 0, log_offset INTEGER NOT NULL DEFAULT -1,
        created_ms INTEGER NOT NULL, updated_ms INTEGER NOT NULL,
        untold INTEGER NOT NULL DEFAULT 0, unfinalized INTEGER NOT NULL DEFAULT 0,
        held TEXT NOT NULL DEFAULT '', held_ms INTEGER NOT NULL DEFAULT -1,
        bytes INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID""",
    "CREATE INDEX jobs_by_time ON jobs (created_ms, job_id)",
    "CREATE INDEX jobs_by_state ON jobs (state, created_ms, job_id)",
    "CREATE INDEX jobs_by_update ON jobs (updated_ms)",
    "CREATE INDEX jobs_untold ON jobs (job_id) WHERE untold OR unfinalized",
    """CREATE TABLE resources (
        job_id TEXT NOT NULL, resource_id TEXT NOT NULL, rank INTEGER NOT NULL, key TEXT NOT NULL DEFAULT '',
        size INTEGER NOT NULL DEFAULT 0, sha256 TEXT NOT NULL DEFAULT '', mime TEXT NOT NULL DEFAULT '',
        error_code TEXT NOT NULL DEFAULT '', error_message TEXT NOT NULL DEFAULT '',
        attempts INTEGER NOT NULL DEFAULT 0, updated_ms INTEGER NOT NULL DEFAULT 0,
        storage TEXT NOT NULL DEFAULT '',
        PRIMARY KEY (job_id, resource_id)) WITHOUT ROWID""",
    # Of those that jobs may share: most keys have the job's id in them, and an index of all would cost each a write.
    "CREATE INDEX resources_by_key ON resources (key) WHERE key <> '' AND instr(key, job_id) = 0",
    """CREATE TABLE submissions (
        job_id TEXT PRIMARY KEY, tenant TEXT NOT NULL, job_type TEXT NOT NULL, idempotency_key TEXT,
        digest BLOB NOT NULL, trace_id TEXT NOT NULL, stage TEXT NOT NULL, resources INTEGER NOT NULL,
        created_ms INTEGER NOT NULL) WITHOUT ROWID""",
    """CREATE UNIQUE INDEX submissions_by_key ON submissions (tenant, job_type, idempotency_key)
        WHERE idempotency_key IS NOT NULL""",
    "CREATE INDEX submissions_open ON submissions (stage) WHERE stage <> 'published'",
    """CREATE TABLE positions (
        topic TEXT NOT NULL, partition INTEGER NOT NULL, next INTEGER NOT NULL,
        PRIMARY KEY (topic, partition)) WITHOUT ROWID""",
    # Dead letters that were dealt with: replayed or discarded.
    """CREATE TABLE letters (
        partition INTEGER NOT NULL, offset INTEGER NOT NULL, became TEXT NOT NULL, at_ms INTEGER NOT NULL,
        PRIMARY KEY (partition, offset)) WITHOUT ROWID""",
    "CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    f"PRAGMA user_version = {VERSION}",
    f"PRAGMA application_id = {APPLICATION}",
)

UPGRADES = {
    1: (
        "ALTER TABLE jobs ADD COLUMN held TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE jobs ADD COLUMN held_ms INTEGER NOT NULL DEFAULT -1",
    ),
    2: (
        "ALTER TABLE jobs ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0",
        # `sum` fails on an overflow, and a log may have claimed any size.
        "UPDATE jobs SET bytes = (SELECT CAST(min(total(size), 9007199254740992) AS INTEGER) "
        "FROM resources WHERE resources.job_id = jobs.job_id)",
    ),
}
"""By the version of a file, the statements that make the next one of it."""
