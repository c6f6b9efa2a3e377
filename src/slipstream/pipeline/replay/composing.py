"""From rows to messages, in Spark's tasks: each writes a file of the replay, in the order of the rows."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from slipstream.pipeline.errors import InvalidPipeline
from slipstream.pipeline.replay.plan import Part

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from slipstream.pipeline.replay.folder import Composition, Replay
    from slipstream.pipeline.replay.selection import Seen, Selection

WRITTEN = "partition int, path string, rows long"
"""The schema of what a task gives back."""

GROUP_ROWS = 4_096
GROUP_BYTES = 8 << 20
"""Of what is held, and of a row group of a file: who sends it holds one."""

Batches = Iterator["pa.RecordBatch"]
Compose = Callable[["pa.RecordBatch"], "pa.RecordBatch"]


class Composed(msgspec.Struct, frozen=True):
    """What a task must know to compose."""

    replay: str
    """Its id."""
    kind: str


def compose(selection: Selection, seen: Seen, place: Composition) -> Replay:
    """Raises InvalidPipeline where it is not what people were shown."""
    order = Composed(place.id, selection.what.kind)
    parts = write_parts(selection.composed(), place.path, functools.partial(_messages, order))
    found = sum(part.rows for part in parts)
    if found != seen.count:
        raise InvalidPipeline(
            f"--where {selection.asked.where!r} does not select the same twice: {seen.count:,} rows, then {found:,}. "
            "Leave out what depends on chance or on the time"
        )
    return place.plan(parts, selection.history.versions, seen.left_out, seen.newest)


def write_parts(rows: DataFrame, folder: Path, composed: Compose | None = None) -> tuple[Part, ...]:
    """Rows that are sorted, in files whose order is theirs. Files of tasks that failed are nobody's."""
    write = functools.partial(_write, str(folder), composed)
    written = rows.mapInArrow(write, WRITTEN).toArrow().to_pylist()
    ordered = sorted((row for row in written if row["rows"]), key=lambda row: row["partition"])
    return tuple(Part(row["path"], row["rows"]) for row in ordered)


def _write(folder: str, composed: Compose | None, batches: Batches) -> Batches:
    import pyarrow as pa  # noqa: PLC0415 - in the task, as all that follows
    from pyspark import TaskContext  # noqa: PLC0415

    context = TaskContext.get()
    assert context is not None, "this runs in a task of Spark"
    name = f"part-{context.partitionId():05}-{uuid.uuid4().hex}.parquet"
    count = _write_file(Path(folder) / name, (composed(batch) if composed else batch for batch in batches))
    yield pa.record_batch(
        {
            "partition": pa.array([context.partitionId()], pa.int32()),
            "path": pa.array([name], pa.string()),
            "rows": pa.array([count], pa.int64()),
        }
    )


def _write_file(path: Path, batches: Batches) -> int:
    """None where there are no rows."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    from slipstream.pipeline.source.columns import combined  # noqa: PLC0415

    count = 0
    writer: pq.ParquetWriter | None = None
    try:
        for batch in combined((batch for batch in batches if batch.num_rows), GROUP_ROWS, GROUP_BYTES):
            writer = writer or pq.ParquetWriter(path, batch.schema, compression="zstd")
            writer.write_table(pa.Table.from_batches([batch]), row_group_size=GROUP_ROWS)
            count += batch.num_rows
    finally:
        if writer is not None:
            writer.close()
    return count


# What a message is


def _messages(order: Composed, rows: pa.RecordBatch) -> pa.RecordBatch:
    import pyarrow as pa  # noqa: PLC0415

    make = _task_message if order.kind == "task" else _same_message
    return pa.RecordBatch.from_pylist([make(order.replay, row) for row in rows.to_pylist()], message_schema())


@functools.cache
def message_schema() -> pa.Schema:
    """Columns as the sink of the connector takes them."""
    import pyarrow as pa  # noqa: PLC0415

    from slipstream.pipeline.source.columns import ENVELOPE, TEXTS  # noqa: PLC0415

    envelope = pa.struct([ENVELOPE.field(name) for name in (*KEPT, "partition_override", "labels")])
    columns = {"topic": pa.string(), "key": pa.binary(), "value": pa.binary(), "headers": TEXTS, "envelope": envelope}
    return pa.schema(list(columns.items()))


KEPT = ("run_id", "step_id", "parent_step_id", "tenant_id", "retry_policy")
"""Of an envelope, as it was. A deadline was for the first time, and has mostly passed; where it was to be routed it is
by now; and a key by which the broker knows a message again would have it swallow this one, so it becomes a label."""

REPLAY, REPLAYED_FROM, REPLAYED_KEY = "replay", "replayed_from", "replayed_idempotency_key"
"""Labels of what is sent again."""


def _same_message(replay: str, row: dict[str, Any]) -> dict[str, Any]:
    envelope = row["envelope"] or {}
    labels = dict(envelope.get("labels") or ()) | _labels(replay, row)
    if key := envelope.get("idempotency_key"):
        labels[REPLAYED_KEY] = key
    goes_back = row["target"] == row["topic"]
    return {
        "topic": row["target"],
        "key": row["key"],
        "value": row["value"],
        "headers": row["headers"],
        "envelope": {
            **{name: envelope.get(name) for name in KEPT},
            # A partition of another topic says nothing about this one.
            "partition_override": envelope.get("partition_override") if goes_back else None,
            "labels": list(labels.items()),
        },
    }


def _task_message(replay: str, row: dict[str, Any]) -> dict[str, Any]:
    from slipstream.jobs.messages import DownloadTask, encode  # noqa: PLC0415
    from slipstream.jobs.publishing import attributes_of  # noqa: PLC0415
    from slipstream.pipeline.replay.protobuf import message_of  # noqa: PLC0415

    task = message_of(DownloadTask, row["task"])
    return {
        "topic": row["target"],
        "key": task.job_id.encode(),
        "value": encode(task),
        "headers": list(attributes_of("DownloadTask", task.job_id, task.trace_id).items()),
        "envelope": {"labels": list(_labels(replay, row).items())},
    }


def _labels(replay: str, row: dict[str, Any]) -> dict[str, str]:
    return {REPLAY: replay, REPLAYED_FROM: f"{row['topic']}/{row['partition']}/{row['offset']}"}
