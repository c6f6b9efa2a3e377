"""Writing a stream into topics, exactly once.

Tasks leave their rows with the server, where nobody sees them; the driver then commits all of them in one step, under
the number of the micro-batch. The server remembers the number in the same step, so a batch that Spark repeats, because
it died before it could note that it was done, is stored no second time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from slipstream.pipeline.source.errors import ConnectorError
from slipstream.pipeline.source.options import Options
from slipstream.pipeline.source.outgoing import requests_of

QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"
"""What Spark tells its tasks. The first is kept in the checkpoint."""


@dataclass
class StagedRows(WriterCommitMessage):
    """What a task has left with the server."""

    writer: str
    staged: list[str]


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: Options) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedRows:
        from slipstream.client import Client, Overloaded  # noqa: PLC0415 - for the processes that write

        writer, batch_id = _who()
        staged: list[str] = []
        with Client(self._options.url) as client:
            last = client.writer_sequence(writer)
            if last is not None and last >= batch_id:
                return StagedRows(writer, [])  # Spark repeats what was committed
            try:
                for topic, messages in requests_of(iterator, self._options.topic):
                    staged.append(client.stage(topic, messages, writer=writer, sequence=batch_id).staged)
            except Overloaded as error:
                error.add_note(
                    "a micro-batch waits whole in the memory of the server until it is committed: make it smaller, "
                    "with maxOffsetsPerTrigger where it is read, or raise max_staged_bytes of the server"
                )
                raise
        return StagedRows(writer, staged)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        from slipstream.client import Client, Conflict  # noqa: PLC0415

        parts = [each for each in messages if isinstance(each, StagedRows)]
        if not parts:
            return
        with Client(self._options.url) as client:
            try:
                client.commit(parts[0].writer, batchId, [staged for part in parts for staged in part.staged])
            except Conflict as error:
                raise ConnectorError(
                    f"batch {batchId} cannot be committed, and nothing of it was: {error}. The server has started anew "
                    "or waited too long; start the query again, and it repeats the batch"
                ) from error

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing is to be undone: what no commit names is seen by nobody, and is forgotten."""


def _who() -> tuple[str, int]:
    context = TaskContext.get()
    query = context.getLocalProperty(QUERY_ID) if context is not None else None
    batch = context.getLocalProperty(BATCH_ID) if context is not None else None
    if query is None or batch is None:
        raise ConnectorError("Spark does not say which batch of which query this is: writing it once needs that")
    return f"spark:{query}", int(batch)
