"""Every setting of download jobs, once: its name in the environment, type, default and meaning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import msgspec

from slipstream.jobs.errors import InvalidJobs
from slipstream.variables import SettingInfo, describe, load, variable

DAY_MS = 24 * 3600 * 1000
MIB = 1 << 20


class JobSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where things are, how much is done at a time, how patient it is, and what it refuses."""

    namespace: Annotated[str, variable("JOBS_NAMESPACE", "What the streams' names start with.")] = "fetchbox"
    config: Annotated[str, variable("JOBS_CONFIG", "The TOML file of job types, storages and proxies.")] = ""
    storage: Annotated[
        str,
        variable("JOBS_STORAGE", "Where objects are stored: a folder, or the URL of a bucket, such as s3://photos."),
    ] = "slipstream-data/objects"
    storage_sync: Annotated[
        bool, variable("JOBS_STORAGE_SYNC", "A task is done when its object is on the disk of a folder, not before.")
    ] = True
    ledger: Annotated[str, variable("JOBS_LEDGER", "The file of the ledger; `:memory:` keeps nothing.")] = (
        "slipstream-data/jobs.db"
    )
    keep_ms: Annotated[
        int, variable("JOBS_KEEP_MS", "How long the ledger keeps a job that nothing happens to any more.", ge=1)
    ] = 30 * DAY_MS

    # The service
    host: Annotated[str, variable("JOBS_HOST", "Where the service listens.")] = "127.0.0.1"
    port: Annotated[int, variable("JOBS_PORT", "Its port; 0 for any that is free.", ge=0, le=65535)] = 8090
    token: Annotated[
        str, variable("JOBS_TOKEN", "What /jobs and /operators ask for, as `Authorization: Bearer …`.", secret=True)
    ] = ""
    max_manifest_bytes: Annotated[
        int, variable("JOBS_MAX_MANIFEST_BYTES", "Of a manifest, after decompression.", ge=1)
    ] = 5_000_000
    max_resources: Annotated[int, variable("JOBS_MAX_RESOURCES", "In a manifest.", ge=1)] = 1_000
    rate_per_s: Annotated[
        float, variable("JOBS_RATE_PER_S", "Jobs that a tenant may submit, on average; 0 for any number.", ge=0)
    ] = 100.0
    rate_burst: Annotated[int, variable("JOBS_RATE_BURST", "Jobs that a tenant may submit at once.", ge=1)] = 1_000
    status_interval_ms: Annotated[
        int,
        variable(
            "JOBS_STATUS_INTERVAL_MS", "Between two JobStatus of a job that goes on; the last is told at once.", ge=0
        ),
    ] = 250

    # Workers
    concurrency: Annotated[int, variable("JOBS_CONCURRENCY", "Downloads at a time in a worker.", ge=1)] = 32
    max_in_flight: Annotated[
        int,
        variable(
            "JOBS_MAX_IN_FLIGHT", "Tasks in the hands of a worker; up to half of them may wait for their hosts.", ge=1
        ),
    ] = 256
    ack_deadline_ms: Annotated[
        int, variable("JOBS_ACK_DEADLINE_MS", "After the death of a worker another has its tasks then.", ge=10)
    ] = 30_000
    max_attempts: Annotated[int, variable("JOBS_MAX_ATTEMPTS", "At a download, before it is a dead letter.", ge=1)] = 5
    max_deliveries: Annotated[
        int,
        variable(
            "JOBS_MAX_DELIVERIES",
            "A task that was delivered so often with an attempt or a crash in it, and never settled, is a dead letter.",
            ge=1,
        ),
    ] = 20
    retry_base_ms: Annotated[
        int, variable("JOBS_RETRY_BASE_MS", "Pause before the first retry; doubling, and a random part on top.", ge=0)
    ] = 500
    retry_longest_ms: Annotated[int, variable("JOBS_RETRY_LONGEST_MS", "Longest such pause.", ge=0)] = 30_000
    retry_after_max_ms: Annotated[
        int, variable("JOBS_RETRY_AFTER_MAX_MS", "A server that asks for more (Retry-After) gets this.", ge=0)
    ] = 3600 * 1000
    hold_ms: Annotated[
        int, variable("JOBS_HOLD_MS", "A task that has to wait for longer goes back to the stream meanwhile.", ge=0)
    ] = 30_000
    host_patience_ms: Annotated[
        int,
        variable(
            "JOBS_HOST_PATIENCE_MS",
            "How long after a task's first 429, or 503 with Retry-After, such an answer uses up no attempt.",
            ge=0,
        ),
    ] = DAY_MS
    upload_attempts: Annotated[int, variable("JOBS_UPLOAD_ATTEMPTS", "At storing what was downloaded.", ge=1)] = 5
    upload_timeout_ms: Annotated[int, variable("JOBS_UPLOAD_TIMEOUT_MS", "Of one such attempt.", ge=1)] = 600_000

    # Workers on Spark
    spark_slots: Annotated[
        int,
        variable(
            "JOBS_SPARK_SLOTS", "Bundles of tasks at a time on Spark; 0: as many as it has cores at the start.", ge=0
        ),
    ] = 0
    spark_bundle: Annotated[int, variable("JOBS_SPARK_BUNDLE", "Tasks in a bundle, at the most.", ge=1)] = 512
    spark_shift_ms: Annotated[
        int, variable("JOBS_SPARK_SHIFT_MS", "After so long a bundle begins no other task: they go to the next.", ge=1)
    ] = 10_000
    spark_cut_ms: Annotated[
        int,
        variable(
            "JOBS_SPARK_CUT_MS",
            "After so long a bundle ends: what is under way then is begun anew in another, with all the time it takes.",
            ge=1,
        ),
    ] = 30_000
    spark_log: Annotated[
        str, variable("JOBS_SPARK_LOG", "The file for what Spark says, where it is started by a worker.")
    ] = "slipstream-data/jobs-spark.log"
    backfill_rows: Annotated[
        int, variable("JOBS_BACKFILL_ROWS", "Rows of a backfill that become one job, at the most.", ge=1)
    ] = 1_000
    backfill_ahead: Annotated[
        int, variable("JOBS_BACKFILL_AHEAD", "Jobs of a backfill that are submitted and have not ended.", ge=1)
    ] = 64

    # Downloads
    connect_timeout_ms: Annotated[int, variable("JOBS_CONNECT_TIMEOUT_MS", "To reach a server.", ge=1)] = 10_000
    read_timeout_ms: Annotated[int, variable("JOBS_READ_TIMEOUT_MS", "Between two pieces of an answer.", ge=1)] = 30_000
    total_timeout_ms: Annotated[int, variable("JOBS_TOTAL_TIMEOUT_MS", "Of one attempt at a download.", ge=1)] = (
        3600 * 1000
    )
    slowest_bytes_per_s: Annotated[
        int, variable("JOBS_SLOWEST_BYTES_PER_S", "A download that is slower for JOBS_SLOWEST_MS is given up.", ge=0)
    ] = 100
    slowest_ms: Annotated[int, variable("JOBS_SLOWEST_MS", "See JOBS_SLOWEST_BYTES_PER_S.", ge=1)] = 60_000
    max_bytes: Annotated[int, variable("JOBS_MAX_BYTES", "Of a resource, after decompression.", ge=1)] = 5 << 30
    max_redirects: Annotated[int, variable("JOBS_MAX_REDIRECTS", "That are followed.", ge=0)] = 10
    max_ratio: Annotated[
        int, variable("JOBS_MAX_RATIO", "What was sent may become so many times as large by decompression.", ge=1)
    ] = 100
    host_concurrency: Annotated[
        int, variable("JOBS_HOST_CONCURRENCY", "Downloads at a time from one host, in a worker; 0 for no limit.", ge=0)
    ] = 4
    host_rate_per_s: Annotated[
        float, variable("JOBS_HOST_RATE_PER_S", "Requests to one host, in a worker; 0 for no limit.", ge=0)
    ] = 0.0
    allow_networks: Annotated[
        str,
        variable("JOBS_ALLOW_NETWORKS", "Inside networks that downloads may reach, with commas, such as 10.1.0.0/16."),
    ] = ""
    spool: Annotated[
        str, variable("JOBS_SPOOL", "Where a download is kept until it is complete; by default the system's place.")
    ] = ""
    spool_memory_bytes: Annotated[
        int, variable("JOBS_SPOOL_MEMORY_BYTES", "A download up to this size is kept in memory.", ge=0)
    ] = MIB


def describe_settings() -> Iterator[SettingInfo]:
    return describe(JobSettings)


def load_settings(given: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> JobSettings:
    """What is given by name, over what the environment says, over the defaults. An empty variable says nothing."""
    return load(JobSettings, given, environment, whose="a job", refuse=InvalidJobs)
