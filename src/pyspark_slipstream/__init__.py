"""Found by Spark: it looks for modules named `pyspark_…` and registers the `DefaultSource` of each, so that
`spark.read.format("slipstream")` works without a call of ours."""

from slipstream.pipeline.source.data_source import SlipstreamDataSource as DefaultSource

__all__ = ["DefaultSource"]
