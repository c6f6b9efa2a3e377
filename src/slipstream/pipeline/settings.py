"""Every setting of the pipeline, once: its name in the environment, type, default and meaning."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

import msgspec

from slipstream.pipeline.errors import InvalidPipeline
from slipstream.variables import SettingInfo, describe, load, variable

DAY_MS = 24 * 3600 * 1000


class PipelineSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the streams and the tables are, how much is taken at a time, and what Spark gets."""

    url: Annotated[str, variable("SLIPSTREAM_URL", "Address of the server whose topics are read.")] = (
        "http://127.0.0.1:8080"
    )
    bus: Annotated[
        Literal["slipstream", "nats"],
        variable("PIPELINE_BUS", "What is read: the topics of a server, or the streams of NATS JetStream."),
    ] = "slipstream"
    tables: Annotated[
        str, variable("PIPELINE_TABLES", "The folder of the tables; on a cluster, one that all its machines see.")
    ] = "slipstream-data/tables"
    topics: Annotated[
        str, variable("PIPELINE_TOPICS", "Which topics go into the table `messages`: a regular expression.")
    ] = ".*"
    namespace: Annotated[str, variable("JOBS_NAMESPACE", "What the names of the streams of jobs start with.")] = (
        "fetchbox"
    )
    slip_topic: Annotated[str, variable("PIPELINE_SLIP_TOPIC", "Where slips tell what happens to them.")] = (
        "slip.events"
    )
    batch_rows: Annotated[
        int, variable("PIPELINE_BATCH_ROWS", "Messages that a query takes at a time, at the most.", ge=1)
    ] = 1_000_000
    fail_on_data_loss: Annotated[
        bool,
        variable("PIPELINE_FAIL_ON_DATA_LOSS", "Stop where messages were removed before they were read; else say so."),
    ] = True
    stuck_after_ms: Annotated[
        int, variable("PIPELINE_STUCK_AFTER_MS", "A slip of which nothing was told for so long is stuck.", ge=1)
    ] = 300_000
    follow_days: Annotated[
        int,
        variable("PIPELINE_FOLLOW_DAYS", "How long after its last news a job or a slip is still found again.", ge=1),
    ] = 30
    compact_after: Annotated[
        int, variable("PIPELINE_COMPACT_AFTER", "Commits to a table before its small files are made one.", ge=2)
    ] = 60
    replay_commit_messages: Annotated[
        int, variable("PIPELINE_REPLAY_COMMIT_MESSAGES", "Messages that a replay commits at a time, at the most.", ge=1)
    ] = 5_000
    replay_commit_bytes: Annotated[
        int, variable("PIPELINE_REPLAY_COMMIT_BYTES", "Likewise, their bytes; a larger message goes alone.", ge=1)
    ] = 8 << 20
    master: Annotated[
        str, variable("PIPELINE_MASTER", "Where Spark runs: `local[*]`, `spark://…`, `k8s://…` or `yarn`.")
    ] = "local[*]"
    remote: Annotated[
        str,
        variable("PIPELINE_REMOTE", "A server of Spark Connect, `sc://HOST:PORT`, instead of a master.", secret=True),
    ] = ""
    spark_conf: Annotated[
        str,
        variable("PIPELINE_SPARK_CONF", "Options of Spark, `spark.NAME=VALUE`, with spaces between; these win."),
    ] = ""
    driver_memory: Annotated[str, variable("PIPELINE_DRIVER_MEMORY", "Of Spark, in local mode all of it.")] = "2g"
    step_rows: Annotated[
        int, variable("PIPELINE_STEP_ROWS", "Messages of a step that a task reads, and a commit has, at most.", ge=1)
    ] = 10_000
    step_jobs: Annotated[
        int, variable("PIPELINE_STEP_JOBS", "Jobs of a step that are under way in Spark at a time.", ge=1)
    ] = 2
    step_retry_longest_ms: Annotated[
        int, variable("PIPELINE_STEP_RETRY_LONGEST_MS", "Longest pause before what was away is tried again.", ge=1)
    ] = 30_000
    shuffle_partitions: Annotated[
        int, variable("PIPELINE_SHUFFLE_PARTITIONS", "Of Spark; a few on one machine, more on a cluster.", ge=1)
    ] = 2


def load_settings(
    given: Mapping[str, Any] | None = None, environment: Mapping[str, str] | None = None
) -> PipelineSettings:
    """Raises InvalidPipeline.

    Example:
        settings = load_settings({"tables": "/srv/tables"})
    """
    found = load(PipelineSettings, given or {}, environment, whose="the pipeline", refuse=InvalidPipeline)
    try:
        re.compile(found.topics)
    except re.error as error:
        raise InvalidPipeline(
            f"PIPELINE_TOPICS={found.topics!r} is no regular expression: {error}; orders|payments names two topics"
        ) from error
    return found


def describe_settings() -> Iterator[SettingInfo]:
    return describe(PipelineSettings)
