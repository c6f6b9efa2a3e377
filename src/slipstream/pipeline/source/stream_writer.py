"""Writing a stream into topics, exactly once.

Tasks leave their rows with the server, where nobody sees them; the driver then commits all of them in one step, under
the number of the micro-batch. The server remembers the number in the same step, so a batch that Spark repeats, because
it died before it could note that it was done, is stored no second time.

What will not be committed is taken back, for the server has only so much room: by a task that fails, by the driver of a
batch that does, and, where nobody was left to do it, by the first task of the next run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from slipstream.pipeline.source.errors import ConnectorError
from slipstream.pipeline.source.options import Options
from slipstream.pipeline.source.outgoing import requests_of

if TYPE_CHECKING:
    from slipstream.client import Client

PROPERTIES = ("sql.streaming.queryId", "streaming.sql.batchId", "spark.jobGroup.id")
"""What Spark tells its tasks: the id of the query, which is kept in the checkpoint, the number of the batch, and the id
of the run, which is new with every start of the query."""


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

        writer, batch_id, run = _who()
        staged: list[str] = []
        with Client(self._options.url) as client:
            last = client.writer_sequence(writer)
            if last is not None and last >= batch_id:
                return StagedRows(writer, [])  # Spark repeats what was committed
            try:
                for topic, messages in requests_of(iterator, self._options.topic):
                    part = client.stage(topic, messages, writer=writer, sequence=batch_id, attempt=run)
                    staged.append(part.staged)
            except Exception as error:
                if isinstance(error, Overloaded):
                    error.add_note(
                        "a micro-batch waits whole in the memory of the server until it is committed: make it smaller, "
                        "with maxOffsetsPerTrigger where it is read, or raise max_staged_bytes of the server"
                    )
                _take_back(client, writer, batch_id, staged, error)
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
        """What no commit names is seen by nobody, but it would take room from the batch when it is repeated. Where no
        task has come to its end, nobody says here what the query is; such tasks have taken back their own."""
        from slipstream.client import Client  # noqa: PLC0415

        writer = next((each.writer for each in messages if isinstance(each, StagedRows)), None)
        if writer is not None:
            with Client(self._options.url) as client:
                client.unstage(writer, batchId)


def _take_back(client: Client, writer: str, sequence: int, staged: list[str], error: Exception) -> None:
    """What a task that fails has staged so far; what the others have is theirs."""
    from slipstream.client import SlipstreamError  # noqa: PLC0415

    if not staged:
        return
    try:
        client.unstage(writer, sequence, staged)
    except SlipstreamError as another:  # the first is what went wrong
        error.add_note(f"what was staged of it stays for a while in the memory of the server: {another}")


def _who() -> tuple[str, int, str]:
    context = TaskContext.get()
    query, batch, run = (context.getLocalProperty(name) if context is not None else None for name in PROPERTIES)
    if query is None or batch is None:
        raise ConnectorError("Spark does not say which batch of which query this is: writing it once needs that")
    return f"spark:{query}", int(batch), run or ""
