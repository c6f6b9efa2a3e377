"""A topic on the shared server, the commands for it, and the session of Spark that they run on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.cli.commands import Commands
from tests.pipeline.shared_spark import share_with_commands, shared_session
from tests.server_process import ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def cli(shared: ServerProcess, topic: str) -> Commands:
    return Commands(shared, topic)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The same session as that of `tests/pipeline`."""
    with shared_session(lambda: tmp_path_factory.mktemp("spark")) as session:
        yield session


@pytest.fixture
def on_spark(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands of this process find Spark running."""
    share_with_commands(spark, monkeypatch)
