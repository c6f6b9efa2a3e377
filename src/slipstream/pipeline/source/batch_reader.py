"""Reading what is there."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from slipstream.pipeline.source.errors import ConnectorError
from slipstream.pipeline.source.offsets import Offsets, ranges_between
from slipstream.pipeline.source.opening import log_of
from slipstream.pipeline.source.options import Options
from slipstream.pipeline.source.planning import tasks_of
from slipstream.pipeline.source.positions import ending, selected, starting
from slipstream.pipeline.source.reading import Task, read_task


class BatchReader(DataSourceReader):
    def __init__(self, options: Options) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        options = self._options
        with log_of(options) as log:
            standing = selected(log, options)
            missing = [name for name in options.named or () if name not in standing]
            if missing:
                raise ConnectorError(
                    f"there is no topic {', '.join(missing)}: create it, or read those there are with subscribePattern"
                )
            start = Offsets(starting(log, options, standing))
            end = Offsets(ending(log, options, standing))
        tasks = tasks_of(ranges_between(start, end), options.tasks_min)
        return [Task(ranges) for ranges in tasks or [[]]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(self._options, partition)
