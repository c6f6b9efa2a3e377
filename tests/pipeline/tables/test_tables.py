"""Each table, made of a scripted stream, against what it must contain."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from slipstream.pipeline.tables import TABLES
from tests.pipeline.answers import answers
from tests.pipeline.compare import KEYS, assert_table
from tests.pipeline.made import make, told
from tests.pipeline.rows import Row
from tests.pipeline.stored import read_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Made(NamedTuple):
    tables: Path
    expected: dict[str, list[Row]]


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    tables = tmp_path_factory.mktemp("tables")
    with told(1_500) as broker:
        make(spark, broker.url, tables)
        yield Made(tables, answers(read_log(broker.url)))


@pytest.mark.parametrize("name", KEYS)
def test_a_table_is_what_the_log_says(made: Made, name: str) -> None:
    assert_table(name, made.tables / name, made.expected[name])


def test_every_table_is_known_to_the_answers() -> None:
    assert set(KEYS) == set(TABLES)
