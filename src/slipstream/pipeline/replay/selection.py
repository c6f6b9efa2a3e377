"""What Spark finds of a question: how many rows, some of them to look at, and all of them to compose."""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from slipstream.pipeline.errors import InvalidPipeline
from slipstream.pipeline.replay.sendable import ORDER, TARGET, Sendable, own_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from slipstream.pipeline.replay.asked import Asked
    from slipstream.pipeline.replay.history import History

SAMPLE_ROWS = 5


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What people are shown before they are asked."""

    count: int
    left_out: int
    topics: dict[str, int]
    """Topic → how many go there."""
    newest: dict[str, int]
    """Topic → the greatest offset of those that come from there."""
    sample: list[dict[str, Any]]


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
        chosen = what.chosen(self._selected, history).withColumn(TARGET, target)
        self.rows = chosen.orderBy(*ORDER).limit(asked.limit) if asked.limit else chosen.orderBy(*ORDER)

    def look(self) -> Seen:
        """Raises InvalidPipeline for an expression that cannot be computed."""
        from pyspark.sql import functions as f  # noqa: PLC0415

        with _words(self.asked.where, self._selected.columns):
            counts = f.count(f.lit(1)).alias("count"), f.max("offset").alias("newest")
            counted = self.rows.groupBy(TARGET, "topic").agg(*counts).orderBy(TARGET, "topic").toArrow().to_pylist()
            topics = Counter[str]()
            newest: dict[str, int] = {}
            for row in counted:
                topics[row[TARGET]] += row["count"]
                newest[row["topic"]] = max(row["newest"], newest.get(row["topic"], 0))
            count = topics.total()
            selected = count if self.asked.limit else self._selected.count()
            sample = self.rows.select(*self.what.shown).limit(SAMPLE_ROWS).toArrow().to_pylist()
        left_out = max(0, selected - count)
        return Seen(count=count, left_out=left_out, topics=dict(topics), newest=newest, sample=sample)

    def composed(self) -> DataFrame:
        """Rows with all that a message needs."""
        return self.rows.select("topic", "partition", "offset", TARGET, *self.what.columns(self.rows))


@contextlib.contextmanager
def _words(where: str, columns: list[str]) -> Iterator[None]:
    """What Spark says of an expression, without its stacks and plans."""
    from pyspark.errors import PySparkException  # noqa: PLC0415

    try:
        yield
    except PySparkException as error:
        if not where:
            raise
        raise InvalidPipeline(f"--where {where!r}: {reason(error)} The columns are {', '.join(columns)}") from error


def reason(error: Exception) -> str:
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    text = re.sub(r"\s*SQLSTATE: \w+.*", "", first)
    return text if text.endswith((".", "?", "!")) else f"{text}."
