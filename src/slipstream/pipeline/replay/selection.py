"""What Spark finds: rows of tables, each pinned at one version."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from slipstream.pipeline.delta import DeltaFolder
from slipstream.pipeline.errors import InvalidPipeline
from slipstream.pipeline.replay.sendable import ORDER, TARGET, Sendable, own_topic
from slipstream.pipeline.tables import TABLES, Table

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from slipstream.pipeline.replay.asked import Asked

SAMPLE_ROWS = 5


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What people are shown before they are asked."""

    count: int
    left_out: int
    topics: dict[str, int]
    """Topic → how many go there."""
    sample: list[dict[str, Any]]


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


class Selection:
    """Rows of one table, in the order in which they will be sent.

    Example:
        selection = Selection(History(spark, root), sendable("dead_letters"), Asked(table="dead_letters"))
        print(selection.look().count)
    """

    def __init__(self, history: History, what: Sendable, asked: Asked) -> None:
        from pyspark.sql import functions as f  # noqa: PLC0415

        self.history = history
        self.what = what
        self.asked = asked
        rows = history.rows(what.table)
        history.name(asked.where)
        with _words(asked.where, rows.columns):
            self._selected = rows.where(asked.where) if asked.where else rows
        target = f.lit(asked.to) if asked.to else own_topic()
        chosen = what.chosen(self._selected).withColumn(TARGET, target)
        self.rows = chosen.orderBy(*ORDER).limit(asked.limit) if asked.limit else chosen.orderBy(*ORDER)

    def look(self) -> Seen:
        """Raises InvalidPipeline for an expression that cannot be computed."""
        from pyspark.sql import functions as f  # noqa: PLC0415

        with _words(self.asked.where, self._selected.columns):
            counted = self.rows.groupBy(TARGET).agg(f.count(f.lit(1)).alias("count")).toArrow().to_pylist()
            topics = {row[TARGET]: row["count"] for row in counted}
            count = sum(topics.values())
            selected = count if self.asked.limit else self._selected.count()
            sample = self.rows.select(*self.what.shown).limit(SAMPLE_ROWS).toArrow().to_pylist()
        return Seen(count=count, left_out=max(0, selected - count), topics=dict(sorted(topics.items())), sample=sample)

    def composed(self) -> DataFrame:
        """Rows with all that a message needs."""
        return self.rows.select("topic", "partition", "offset", TARGET, *self.what.columns(self.rows))


@contextlib.contextmanager
def _words(where: str, columns: list[str]) -> Iterator[None]:
    """What Spark says of an expression, without its stacks and plans."""
    from pyspark.errors import PySparkException  # noqa: PLC0415

    aloud = logging.getLogger("SQLQueryContextLogger")
    aloud.disabled = True  # it would say the same to stderr, with all stacks, in JSON
    try:
        yield
    except PySparkException as error:
        if not where:
            raise
        raise InvalidPipeline(f"--where {where!r}: {reason(error)} The columns are {', '.join(columns)}") from error
    finally:
        aloud.disabled = False


def reason(error: Exception) -> str:
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    text = re.sub(r"\s*SQLSTATE: \w+.*", "", first)
    return text if text.endswith((".", "?", "!")) else f"{text}."
