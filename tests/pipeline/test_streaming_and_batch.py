"""Where one batch ends and the next begins makes no difference."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from slipstream.client import Client
from slipstream.testing import MemoryBroker
from tests.pipeline.compare import KEYS, assert_same_tables
from tests.pipeline.made import BEFORE_MIDNIGHT, make, told
from tests.pipeline.story import PARTITIONS, produce, story

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def assert_all_same(found: Path, wanted: Path) -> None:
    for name in KEYS:
        assert_same_tables(name, found / name, wanted / name)


def test_many_small_batches_come_to_the_same_as_one(spark: SparkSession, tmp_path: Path) -> None:
    with told(600) as broker:
        make(spark, broker.url, tmp_path / "one")
        make(spark, broker.url, tmp_path / "many", batch_rows=150)
    assert_all_same(tmp_path / "many", tmp_path / "one")


def test_a_run_goes_on_where_the_last_has_ended(spark: SparkSession, tmp_path: Path) -> None:
    """Topics and partitions come to be between two runs."""
    said = list(story(600))
    with MemoryBroker(start=BEFORE_MIDNIGHT) as broker, Client(broker.url) as client:
        for topic in list(PARTITIONS)[1:]:
            client.create_topic(topic, PARTITIONS[topic])
        late = next(iter(PARTITIONS))
        produce(client, [one for one in said[:200] if one.topic != late])
        make(spark, broker.url, tmp_path / "often")
        client.create_topic(late, PARTITIONS[late])
        broker.advance(minutes=2)
        produce(client, said[200:400])
        make(spark, broker.url, tmp_path / "often")
        make(spark, broker.url, tmp_path / "often")
        broker.advance(minutes=2)
        produce(client, said[400:])
        make(spark, broker.url, tmp_path / "often")
        make(spark, broker.url, tmp_path / "once")
    assert_all_same(tmp_path / "often", tmp_path / "once")
