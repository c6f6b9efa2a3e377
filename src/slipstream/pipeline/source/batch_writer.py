"""Writing a frame into topics, at least once: a task that fails half way is repeated as a whole."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from slipstream.pipeline.source.options import Options
from slipstream.pipeline.source.outgoing import requests_of


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, options: Options) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        from slipstream.client import Client  # noqa: PLC0415 - for the processes that write

        with Client(self._options.url) as client:
            for topic, messages in requests_of(iterator, self._options.topic):
                # With a key, so that a request whose answer is lost is sent again, and stored once.
                client.produce_batch(topic, messages, idempotency_key=f"spark-{secrets.token_hex(12)}")
        return WriterCommitMessage()
