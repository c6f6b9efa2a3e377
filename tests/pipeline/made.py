"""Tables made of a scripted stream, for tests to look at."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slipstream.pipeline.queries import queries_of
from slipstream.pipeline.run import Pipeline
from slipstream.pipeline.settings import load_settings
from slipstream.testing import MemoryBroker
from tests.pipeline.story import tell

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BEFORE_MIDNIGHT = dt.datetime(2026, 4, 30, 23, 57, tzinfo=dt.UTC)


@contextlib.contextmanager
def told(count: int) -> Iterator[MemoryBroker]:
    """A broker to which it was told over some minutes, the last of them after midnight."""
    with MemoryBroker(start=BEFORE_MIDNIGHT) as broker:
        tell(broker.url, count, parts=12, between=lambda: broker.advance(seconds=40))
        yield broker


def make(spark: SparkSession, url: str, tables: Path, *only: str, **settings: Any) -> None:
    """Brings the tables up to date with what is there."""
    given = {"url": url, "tables": str(tables), **settings}
    Pipeline(spark, load_settings(given, {})).run(queries_of(only), once=True)
