"""A Spark session for the tests of a process, which start it when the first asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.pipeline.shared_spark import share_with_commands, shared_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Start Spark as the pipeline does; what a test leaves behind goes with its folder."""
    with shared_session(lambda: tmp_path_factory.mktemp("spark")) as session:
        yield session


@pytest.fixture
def on_spark(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands of this process find Spark running."""
    share_with_commands(spark, monkeypatch)
