"""`format("slipstream")`."""

from __future__ import annotations

from collections.abc import MutableMapping

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from slipstream.pipeline.source.batch_reader import BatchReader
from slipstream.pipeline.source.batch_writer import BatchWriter
from slipstream.pipeline.source.errors import ConnectorError
from slipstream.pipeline.source.options import Options, Use, read_options, write_options
from slipstream.pipeline.source.outgoing import check_columns
from slipstream.pipeline.source.reading import schema_of
from slipstream.pipeline.source.stream_reader import StreamReader
from slipstream.pipeline.source.stream_writer import StreamWriter


class SlipstreamDataSource(DataSource):
    """Topics of a Slipstream server, or streams of NATS JetStream, for reading and writing, in batches and streams."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(dict(options))

    @classmethod
    def name(cls) -> str:
        return "slipstream"

    def schema(self) -> StructType:
        return from_arrow_schema(schema_of(read_options(self.options, Use.READ)))

    def reader(self, schema: StructType) -> DataSourceReader:
        options = read_options(self.options, Use.BATCH)
        self._check(schema)
        return BatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        options = read_options(self.options, Use.STREAM)
        self._check(schema)
        return StreamReader(options)

    def _check(self, schema: StructType) -> None:
        if schema != self.schema():
            raise ConnectorError(
                "the columns of slipstream are always the same: leave out .schema(…), and select what you want"
            )

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return BatchWriter(self._writing(schema, overwrite, 'mode("append")'))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        return StreamWriter(self._writing(schema, overwrite, 'outputMode("append")'))

    def _writing(self, schema: StructType, overwrite: bool, instead: str) -> Options:
        if overwrite:
            raise ConnectorError(f"what is in a topic is not overwritten: write with {instead}")
        options = write_options(self.options)
        check_columns(schema, options.topic)
        return options
