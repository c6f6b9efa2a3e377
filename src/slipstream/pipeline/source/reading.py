"""What a task does, whether for a batch or for a stream: reads its ranges, in a process of its own."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from slipstream.pipeline.source.columns import LOG_SCHEMA, RANGE_SCHEMA, combined
from slipstream.pipeline.source.log import BATCH_BYTES, BATCH_ROWS
from slipstream.pipeline.source.opening import log_of
from slipstream.pipeline.source.options import Options
from slipstream.pipeline.source.range import Range


class Task(InputPartition):
    """The ranges that one task reads."""

    def __init__(self, ranges: Sequence[Range]) -> None:
        self.ranges = list(ranges)

    def __repr__(self) -> str:
        return f"Task({self.ranges!r})"


def schema_of(options: Options) -> pa.Schema:
    if options.content == "ranges":
        return RANGE_SCHEMA
    left_out = set() if options.headers else {"headers"}
    if not options.envelope:
        left_out |= {"envelope", "routing"}
    return pa.schema([field for field in LOG_SCHEMA if field.name not in left_out])


def read_task(options: Options, task: InputPartition) -> Iterator[pa.RecordBatch]:
    assert isinstance(task, Task)
    if options.content == "ranges":
        if task.ranges:
            yield _as_rows(task.ranges)
        return
    names = schema_of(options).names
    _spare_what_is_imported()
    with log_of(options) as log:
        batches = chain.from_iterable(log.read(each) for each in task.ranges)
        # The ends of ranges are often small, and Spark pays for every batch.
        for batch in combined(batches, BATCH_ROWS // 2, BATCH_BYTES // 2):
            yield batch.select(names)


@cache
def _spare_what_is_imported() -> None:
    """Spark has its Python collect garbage after every task, and looks for it in all that was ever imported: that took
    60 ms, a fifth of what a task of 250,000 messages does."""
    gc.collect()
    gc.freeze()


def _as_rows(ranges: Sequence[Range]) -> pa.RecordBatch:
    columns = [[getattr(each, name) for each in ranges] for name in RANGE_SCHEMA.names]
    return pa.record_batch(
        [pa.array(column, field.type) for column, field in zip(columns, RANGE_SCHEMA, strict=True)], RANGE_SCHEMA
    )
