"""The data pipeline on Spark: topics as DataFrames, and DataFrames as topics.

What it reads it reads as everybody does, through the log of the broker (`/v2`, or the segment files where they are at
hand) or of the bus; it knows nothing of leases, groups or the journal. Needs the extra `slipstream[pipeline]`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Makes `format("slipstream")` known to a session. Where the package is installed, Spark finds it by itself."""
    from slipstream.pipeline.source.data_source import SlipstreamDataSource  # noqa: PLC0415 - pyspark is an extra

    spark.dataSource.register(SlipstreamDataSource)
