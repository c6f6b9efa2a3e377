"""Writing a frame into topics, at least once: a task that fails half way is repeated as a whole."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from slipstream.pipeline.source.options import Options
from slipstream.pipeline.source.outgoing import requests_of

log = logging.getLogger(__name__)


@dataclass
class WrittenRows(WriterCommitMessage):
    """What a task has stored."""

    messages: int


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, options: Options) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenRows:
        from slipstream.client import Client  # noqa: PLC0415 - for the processes that write

        written = 0
        with Client(self._options.url) as client:
            for topic, messages in requests_of(iterator, self._options.topic):
                # With a key, so that a request whose answer is lost is sent again, and stored once.
                client.produce_batch(topic, messages, idempotency_key=f"spark-{secrets.token_hex(12)}")
                written += len(messages)
        return WrittenRows(written)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """A log takes nothing back: all that can be done is to say it."""
        written = sum(each.messages for each in messages if isinstance(each, WrittenRows))
        log.warning(
            "the frame was not written whole: %d messages of tasks that were done are stored, and perhaps some of the "
            "others; written again, they are there twice",
            written,
        )
