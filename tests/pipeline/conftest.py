"""A Spark session for the tests of a process, which start it when the first asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from slipstream.pipeline.session import spark_session
from slipstream.pipeline.settings import load_settings
from tests.pipeline.cluster import Cluster, connect_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """As the pipeline starts it, on two cores; and what a test leaves behind goes with its folder."""
    home = tmp_path_factory.mktemp("spark")
    settings = load_settings({"master": "local[2]", "driver_memory": "1g", "shuffle_partitions": 2}, {})
    extra = {
        "spark.driver.extraJavaOptions": f"-XX:+UseSerialGC -Dderby.system.home={home}",
        "spark.local.dir": str(home / "local"),
    }
    with spark_session(settings, home / "spark.log", extra) as session:
        yield session


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One for each test, which may lose workers. Its driver is a process of its own: Spark allows one in a process."""
    with Cluster(tmp_path_factory.mktemp("cluster")) as found:
        yield found


@pytest.fixture
def connect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server of Spark Connect."""
    with connect_server(tmp_path_factory.mktemp("connect")) as url:
        yield url
