"""`format("slipstream")`."""

from __future__ import annotations

from collections.abc import MutableMapping

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from slipstream.pipeline.source.batch_reader import BatchReader
from slipstream.pipeline.source.errors import ConnectorError
from slipstream.pipeline.source.options import Use, read_options
from slipstream.pipeline.source.reading import schema_of
from slipstream.pipeline.source.stream_reader import StreamReader


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
