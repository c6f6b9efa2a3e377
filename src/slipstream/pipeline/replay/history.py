"""Tables as Spark reads them, each pinned at one version."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from slipstream.pipeline.delta import DeltaFolder
from slipstream.pipeline.tables import TABLES, Table

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession


class History:
    """The tables of a folder, as they were when they were first asked for. Close it."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self._spark = spark
        self._folder = DeltaFolder(root)
        self._named: set[str] = set()
        self.versions: dict[str, int] = {}

    def has(self, table: Table) -> bool:
        return self._folder.exists(table.name)

    def rows(self, table: Table) -> DataFrame:
        """All columns, the date too."""
        from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 - an extra, and it takes a second

        schema = from_arrow_schema(table.columns)
        paths = self._folder.files(table, version=self._version(table))
        if not paths:
            return self._spark.createDataFrame([], schema)
        base = str(self._folder.path(table.name))
        return self._spark.read.schema(schema).option("basePath", base).parquet(*paths)

    def _version(self, table: Table) -> int:
        from deltalake import DeltaTable  # noqa: PLC0415

        if table.name not in self.versions:
            self.versions[table.name] = DeltaTable(str(self._folder.path(table.name))).version()
        return self.versions[table.name]

    def name(self, where: str) -> None:
        """Tables that an expression speaks of, for its subqueries, under their names, until `close`: over Spark Connect
        an expression is looked at when it is computed."""
        words = set(re.findall(r"\w+", where))
        for table in TABLES.values():
            if table.name in words and table.name not in self._named and self.has(table):
                self.rows(table).createOrReplaceTempView(table.name)
                self._named.add(table.name)

    def close(self) -> None:
        for name in self._named:
            self._spark.catalog.dropTempView(name)
        self._named.clear()
